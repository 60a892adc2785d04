"""Values over the course of a run: curves, and the phases in which they apply."""
