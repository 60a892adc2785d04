"""What scripts of LiBai and detectron2 touch while they run: trainers, hooks, storage, loaders, evaluators."""
