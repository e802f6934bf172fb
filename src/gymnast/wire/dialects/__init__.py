"""Dialects of model APIs, converted to and from the Responses form at the edge."""
