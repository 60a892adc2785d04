"""Hooks that come with Étude, one file each. Their registered names are in ``etude.builtins``."""
