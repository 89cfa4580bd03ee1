"""How fast it is: against the multiplications that it cannot avoid, and against other libraries."""
