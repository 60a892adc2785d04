"""Verbs that look at runs: runs, show, diff, report, board."""
