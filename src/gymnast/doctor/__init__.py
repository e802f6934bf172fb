"""Debugging by classification: what was read of a run, its logs and its job, and which layer failed. It only reads."""
