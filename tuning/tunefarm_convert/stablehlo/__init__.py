"""Convert StableHLO programs to ONNX (docs/adr/0034-stablehlo-is-converted-by-the-user.md).

`convert` has `parser` read a module, by its `attributes`, into a `program`, and converts it operation by operation: a converter (in
`operators`) gets a `converter`'s context, with the `values` in the layouts that they are in. What is constant is folded (`folding`);
`batch_norms` are put together again at the end. `xla` runs a program in its own compiler.
"""
