"""Benchmarks: declarative files that say where the data is, how rows become tasks, and how they are scored."""
