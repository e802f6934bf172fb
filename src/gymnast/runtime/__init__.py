"""Runs instances in this process, in child processes or at URLs; the head server; supervision."""
