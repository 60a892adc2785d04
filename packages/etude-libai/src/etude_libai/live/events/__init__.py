"""LiBai's EventStorage and its writers."""
