"""The pages of the studio as JSON, one module a page."""
