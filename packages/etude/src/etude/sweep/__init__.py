"""Sweeps: the same config trained with many values, by grid, at random, or by Optuna's samplers."""
