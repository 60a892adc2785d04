"""Schedules: curves of a value over a run, and the phases in which they apply."""
