"""A small compressor with its losses, for use without the mcquic package."""
