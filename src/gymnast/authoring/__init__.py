"""For those who write environments: check one, begin a new one."""
