"""Finds the checkpoint that a LiBai run resumes from, and restores its state."""
