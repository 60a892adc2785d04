"""detectron2's CfgNode with its defaults, and Registry."""
