"""MMEngine's datasets, dataset wrappers, samplers and collate functions."""
