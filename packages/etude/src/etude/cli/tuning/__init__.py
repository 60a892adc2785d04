"""Verbs that search for settings: sweep, lr-find, fit-batch."""
