"""The webhook receiver: verify, keep, acknowledge, and nothing else."""
