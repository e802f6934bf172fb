"""Adapters: how the files of built-in benchmarks become rows. Each module has a function `read_rows(files)`."""
