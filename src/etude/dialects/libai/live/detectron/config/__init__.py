"""detectron2's config nodes, defaults and registry."""
