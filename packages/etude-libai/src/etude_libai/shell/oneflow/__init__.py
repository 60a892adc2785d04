"""Finds OneFlow's launcher in the shell scripts that `etude exec` runs. Nothing else of OneFlow is here."""
