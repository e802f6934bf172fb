"""The companion of one component: leases its port, starts it, publishes its address, watches it, ends it.

Only the standard library and Python 3.8: packed into one file (`components.packing`), it runs in any container that
has python3, where Gymnast is not installed.
"""
