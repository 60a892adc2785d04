"""McQuic: YAML configs with ``key`` and ``params``, four registries, external libraries, six kinds of hooks."""
