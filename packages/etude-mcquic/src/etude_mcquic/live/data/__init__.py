"""McQuic's image datasets and transforms."""
