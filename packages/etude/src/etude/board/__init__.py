"""A live page of all runs below a folder. Reads run folders only and changes nothing. Imports no torch."""
