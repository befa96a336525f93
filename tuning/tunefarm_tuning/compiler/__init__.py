"""Compile a model with its history into a checked artifact.

`compile` makes a `request`, and `job` runs the `phases` on it; `session` is the compiling child. `kernel_validation`, `alternatives` and
`alternative_selection` decide on kernels, `model_comparison` (with `references`) and `model_timing` (beside `baselines`; `kernel_sums`
where it is too uncertain) on the network, `runtime_parts` times what ONNX Runtime runs of it, `report` writes down why.

Of an artifact that is there: `evaluate` and `time_again` time it, `verify` compares it (`artifact_comparison`). `network_timing` and
`kernel_source` serve a search.
"""
