"""Environments: their spaces, one or several of them, the quirks of their simulators, films of them."""
