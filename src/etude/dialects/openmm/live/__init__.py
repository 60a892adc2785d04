"""What both ways of OpenMMLab read and write while a run is alive: checkpoints, wherever they lie."""
