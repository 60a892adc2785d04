"""Looks at the first batches, so that mistakes in user code show before the first epoch ends."""
