"""Logger hooks of mmcv: they write the log buffer to the console, to JSON lines, or to an experiment tracker."""
