"""Keeps the state of a run, and takes it up again: locks, the store, saving, and restoring."""
