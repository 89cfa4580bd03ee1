"""A policy for other programs: as an ONNX graph, or as arrays and a little NumPy, with a card that says what it is."""
