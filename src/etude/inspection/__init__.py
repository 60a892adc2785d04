"""Reports what can be known about a config without importing or building anything."""
