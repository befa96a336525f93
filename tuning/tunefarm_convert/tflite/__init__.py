"""TFLite files, read as ONNX models: docs/adr/0023-tflite-files-are-read-as-onnx.md."""
