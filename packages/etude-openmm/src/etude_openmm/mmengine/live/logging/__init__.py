"""MMEngine's MessageHub, HistoryBuffer, MMLogger and LogProcessor."""
