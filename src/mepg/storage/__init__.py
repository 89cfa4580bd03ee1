"""Run folders, checkpoints, policies and logs, written and read. Knows no environment."""
