"""What MMSelfSup 1.x adds to MMEngine: registries, a base model, hooks, layer-wise learning rates, a sampler."""
