"""Convert StableHLO programs to ONNX (docs/adr/0034-stablehlo-is-converted-by-the-user.md)."""
