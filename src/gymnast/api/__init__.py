"""The Python API: `collect` and `Collector`."""
