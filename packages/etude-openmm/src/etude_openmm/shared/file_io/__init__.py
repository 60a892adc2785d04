"""File backends, ``load``/``dump``, and safe reading of pickles."""
