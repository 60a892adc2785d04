"""The dialect of McQuic: YAML configs with ``key`` and ``params``, registries, external libraries, hooks."""
