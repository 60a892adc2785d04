"""MMEngine's parameter schedulers: ten curves, each on the learning rate, on the momentum, or on any entry."""
