"""Optimizers: which parameters get which options, torch's own made fast, and LARS and LAMB."""
