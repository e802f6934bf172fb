"""Datasets for other trainers: rollouts of runs selected, converted to chat rows, and written with a card."""
