"""What happens at points of a run, one file each. The registered names are in ``etude.builtins``."""
