"""LiBai's hooks: timer, learning rate, writers, evaluation, checkpoints."""
