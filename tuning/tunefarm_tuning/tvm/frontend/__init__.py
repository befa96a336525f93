"""ONNX to Relax: TVM's importer with our converters before its own."""
