"""The dialect of LiBai and detectron2: lazy configs, trainers with hooks, an event storage."""
