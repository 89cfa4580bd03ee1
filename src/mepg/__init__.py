"""MEPG: minimalist ensemble policy gradients. A critic with a mask is one of 2^n; the complete one is all of them."""

__version__ = "0.1.0"
