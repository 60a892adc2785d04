"""Helps others to test what they build on Étude. Import it in tests only: it needs pytest."""
