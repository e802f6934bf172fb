"""NeMo Gym's commands and import surface."""
