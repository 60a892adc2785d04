"""Starts the processes of a run, watches them, and carries their messages."""
