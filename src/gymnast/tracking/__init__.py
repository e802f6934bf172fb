"""Sends what a run does to experiment trackers and, as traces, to an OpenTelemetry collector."""
