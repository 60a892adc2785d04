"""Everything around a run: its folder, saves, resume, injected faults and the summary at the end."""
