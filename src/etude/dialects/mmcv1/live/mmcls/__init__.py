"""What configs and modules written for mmclassification 0.x need: registries, builders, a training function."""
