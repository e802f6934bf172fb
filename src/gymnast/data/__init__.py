"""Datasets: checked, put together, rendered, fetched. Reads files and configurations; starts nothing."""
