"""Looking for good settings: Optuna proposes, runs with several seeds answer."""
