"""A run in chunks: the lease protocol, the workers that hold leases, and the merge of what they wrote."""
