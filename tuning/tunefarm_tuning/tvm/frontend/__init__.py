"""ONNX to Relax: TVM's importer with our converters before its own.

`importer` imports a network: a node by one of the `converters`, which get a `node_context`, by a body of other operators
(`function_bodies`), or by TVM's converter; constants are folded (`constant_folding`). Where dimensions are open, `symbolic_sizes` computes
with them, and `operator_sizes` (by the table in `size_rules`) sets `size_conditions`. `survey` says which nodes cannot be imported.
"""
