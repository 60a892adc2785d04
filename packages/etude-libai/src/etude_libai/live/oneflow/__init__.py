"""The names of OneFlow that LiBai code uses, implemented with torch."""
