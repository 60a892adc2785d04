"""detectron2's config nodes with their defaults, and registry."""
