"""What configs and modules written for mmtracking 0.x need: registries, builders, a training function."""
