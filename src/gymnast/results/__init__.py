"""A run as a Python object: its records, its figures, and data frames of them."""
