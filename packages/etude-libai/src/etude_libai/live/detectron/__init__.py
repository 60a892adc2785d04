"""detectron2's trainers, hooks, writers and loaders, where they differ from LiBai's."""
