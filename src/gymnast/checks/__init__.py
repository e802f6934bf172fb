"""Checks before anything is spent: tools against constrained decoding, rows against a task model, an endpoint."""
