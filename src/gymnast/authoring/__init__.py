"""For authors of environments: creates a new one from a template."""
