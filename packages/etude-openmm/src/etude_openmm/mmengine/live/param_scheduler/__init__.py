"""MMEngine's parameter schedulers: ten curves for the learning rate, the momentum, or any entry of a group."""
