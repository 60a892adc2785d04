"""detectron2's flavour of the parts in :mod:`etude.dialects.libai.live`: only what differs."""
