"""Splits a model over processes: its layers, its stages, its parameters, and the sequences of its data."""
