"""Finds out which layer of a run failed, from its files, its logs and its job. Read-only."""
