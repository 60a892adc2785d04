"""The hub of scalars and infos, their histories, the logger, and the text of log lines."""
