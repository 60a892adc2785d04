"""OneFlow names that LiBai code uses, on torch."""
