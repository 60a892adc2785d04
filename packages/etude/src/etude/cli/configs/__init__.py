"""Verbs about configs: check, plan, config, list, schema, init, convert."""
