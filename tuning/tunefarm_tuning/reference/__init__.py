"""The reference: the outputs that a compiled network is compared with, how far it may be from them, and the inputs that both run on.

Here is the parent's side. `frontend.onnx.reference_child` computes the outputs, with what is in `frontend.onnx.reference`;
`compiler.references` asks for them, in each set of shapes of a compile.

- Inputs: `random_inputs`, or the user's `samples` (a child, `samples_child`, reads their `sample_file`).
- Expected outputs: `onnx_runtime`, which keeps them in `kept_outputs`; `single_run` runs a network once.
- How far others may be from them: `widths`, and `comparison` (of floats: `float_pair`).
"""
