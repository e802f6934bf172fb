"""Slurm: job scripts as pure text, its commands with deadlines, its words for how jobs stand."""
