"""detectron2's catalogs, loaders and samplers."""
