"""Converters of ONNX Runtime's own operators, which its optimiser, its quantiser and its exporters write: several of ONNX's in one."""
