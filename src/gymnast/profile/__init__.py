"""Reward profiles: statistics over stored rollouts. Reads only records."""
