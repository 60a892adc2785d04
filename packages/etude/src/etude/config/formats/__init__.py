"""Parse one format each, with the line of every key."""
