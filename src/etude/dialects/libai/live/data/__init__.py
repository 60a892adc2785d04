"""LiBai's loaders, samplers and sample structures."""
