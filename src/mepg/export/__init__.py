"""Policies for other programs, as ONNX, NumPy or C, and model cards about them."""
