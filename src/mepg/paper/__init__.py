"""The paper as data: its experiments, its published numbers, and what belongs beside them."""
