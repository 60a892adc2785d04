"""Resumes torch's ``DataLoader`` in the middle of a pass, with the generators of its workers."""
