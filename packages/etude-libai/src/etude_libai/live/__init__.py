"""The running half of LiBai and detectron2: trainers, hooks, storage, loaders, evaluators."""
