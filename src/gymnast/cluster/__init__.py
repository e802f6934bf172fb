"""The same run on many workers: chunks that are leased, executors that start workers, one merged result."""
