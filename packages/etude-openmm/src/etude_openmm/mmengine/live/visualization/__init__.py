"""MMEngine's Visualizer and its backends, which write scalars, configs and images."""
