"""The small compressor that stands in where the mcquic package is absent, and its losses."""
