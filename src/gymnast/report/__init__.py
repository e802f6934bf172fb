"""Pictures of runs: the HTML report and its terminal form. Reads records and profiles, writes one file."""
