"""The child's side of the reference: forms of a network that ONNX Runtime runs, in float64, with moved weights or in segments."""
