"""Policy servers and services inside a job: components as values, and the sidecar that supervises each of them."""
