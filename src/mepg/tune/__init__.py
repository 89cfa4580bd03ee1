"""The search for good settings with Optuna, over runs with several seeds."""
