"""MMSelfSup 1.x on MMEngine: registries, a base model, hooks, layer-wise learning rates, a sampler."""
