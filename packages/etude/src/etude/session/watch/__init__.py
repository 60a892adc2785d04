"""Watches a run while it trains: signals, faults, hangs, its status, and where its time goes."""
