"""Everything that `gymnast check` does: checks endpoints, rows, tools and environments before a run."""
