"""Shows what a run will do before it starts: steps, learning rates, hooks, saves."""
