"""Everything around a run: its folder, lock, signals, resume and the summary at the end."""
