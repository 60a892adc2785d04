"""detectron2's hooks, event storage and writers."""
