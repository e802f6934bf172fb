"""The HTTP contract: requests and replies, servers as route tables, session cookies, error bodies, transports."""
