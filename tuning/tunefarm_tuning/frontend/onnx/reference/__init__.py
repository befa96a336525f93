"""What `reference_child` runs in place of a network to compare with it: the network in ONNX Runtime, in float64 too, and in segments."""
