"""From a finished run to a model: load its weights, predict, export."""
