"""What MMPretrain adds to MMEngine, as far as its training configs need it."""
