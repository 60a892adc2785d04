"""LiBai's loaders, samplers and ``Instance`` samples."""
