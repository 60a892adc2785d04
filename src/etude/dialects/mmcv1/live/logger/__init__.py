"""Hooks that write the log buffer: to the console and JSON lines, or to an experiment tracker."""
