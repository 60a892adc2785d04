"""Reads run folders, of Étude and of the systems whose configs it trains. Imports no torch."""
