"""LiBai's hooks."""
