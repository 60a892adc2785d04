"""LiBai's event storage, and the writers that read it."""
