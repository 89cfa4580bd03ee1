"""Environments: spaces, one environment or several, simulators, videos."""
