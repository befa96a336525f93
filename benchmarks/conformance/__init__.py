"""ONNX's own test cases through tunefarm's whole path. Run from the root: ``python -m benchmarks.conformance.run``."""
