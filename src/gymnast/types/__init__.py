"""Frozen data without I/O: what the rest of Gymnast passes around and persists."""
