"""The commands and the import surface that NeMo Gym's users know."""
