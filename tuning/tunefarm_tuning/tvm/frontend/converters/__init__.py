"""Our converters of ONNX operators; `table` lists them by operator."""
