"""Saves and joins the state that several ranks hold pieces of."""
