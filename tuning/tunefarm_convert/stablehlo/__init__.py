"""Reading StableHLO programs as ONNX models (docs/adr/0034-stablehlo-is-converted-by-the-user.md)."""
