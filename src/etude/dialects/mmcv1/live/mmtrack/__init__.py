"""MMTracking 0.x without the project: registries, builders, a training function."""
