"""Computes a run, step by step, and hands out records. Opens no file."""
