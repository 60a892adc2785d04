"""Images and their transforms."""
