"""Running programs that a model wrote: never as us, never without limits."""
