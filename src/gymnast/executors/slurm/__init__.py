"""Slurm: job scripts as pure text, its commands with timeouts, its job states."""
