"""Readers of other model formats: TFLite files and StableHLO programs become ONNX models."""
