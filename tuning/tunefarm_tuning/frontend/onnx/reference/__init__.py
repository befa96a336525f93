"""The reference of a compiled network: how ONNX Runtime runs it, in float64 too, and how it is cut into parts."""
