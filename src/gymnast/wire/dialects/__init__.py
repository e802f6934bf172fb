"""Dialects of model APIs, converted to and from Responses at the edge."""
