"""The modules that import onnx and onnxruntime. They run in child processes only: what they read is a stranger's model."""
