"""LiBai and its origin, detectron2: lazy configs, trainers with hooks, an event storage."""
