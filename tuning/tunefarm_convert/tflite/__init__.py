"""Convert TFLite files to ONNX models (docs/adr/0023-tflite-files-are-read-as-onnx.md)."""
