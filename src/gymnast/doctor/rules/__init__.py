"""Doctor's rules, each a small pure function from facts to a finding."""
