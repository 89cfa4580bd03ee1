"""A module that cannot be imported, for tests of what is said about that."""

raise RuntimeError("not\ntoday")
