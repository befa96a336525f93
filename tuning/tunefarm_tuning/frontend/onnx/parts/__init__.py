"""Networks that are compiled in part: which nodes ONNX Runtime runs, and the graphs of both sides."""
