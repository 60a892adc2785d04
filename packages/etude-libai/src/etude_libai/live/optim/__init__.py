"""Parameter groups, optimizers and schedulers of LiBai."""
