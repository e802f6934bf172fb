"""The engine: plan, attempt, classify, collect."""
