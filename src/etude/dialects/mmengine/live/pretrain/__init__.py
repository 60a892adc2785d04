"""MMPretrain on MMEngine, as far as its training configs need it."""
