"""Where workers are started (this host, Slurm, Ray) and how a run is submitted to them."""
