"""High-value suspects, each a small pure function from facts to a finding."""
