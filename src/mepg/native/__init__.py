"""An agent's pure functions, compiled to C++: the jaxpr is the only description of the mathematics."""
