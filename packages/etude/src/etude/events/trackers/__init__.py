"""Trackers: a file per service, and the thread that sends to it."""
