"""The paper as data: its experiments, its published numbers, and tables of both."""
