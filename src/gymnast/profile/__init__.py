"""Reward profiles: statistics over stored rollouts. Reads records and nothing else."""
