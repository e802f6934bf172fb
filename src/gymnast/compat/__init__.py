"""The commands and, later, the import surface that NeMo Gym's users know."""
