"""The sidecar of one component: leases its port, starts it, publishes its address, watches it, ends it.

Only the standard library and Python 3.8: packed into one file (`sidecars.packing`), it runs in any container that has
python3, without Gymnast installed.
"""
