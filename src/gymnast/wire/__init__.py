"""The HTTP contract: requests and replies, servers as route tables, sessions by cookie, error bodies, transports."""
