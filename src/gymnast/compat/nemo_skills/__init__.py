"""The NeMo Skills pipeline: `nemo_gym_rollouts` and `run_cmd` under the names and options that its users know."""
