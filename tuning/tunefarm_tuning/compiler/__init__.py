"""Compile a model with its history into a checked artifact.

`compile` makes a `request`, and `job` runs the `phases` on it; `session` is the compiling child. `kernel_validation`, `alternatives` and
`alternative_selection` decide on kernels, `model_comparison` and `model_timing` on the network, `report` writes down why.

Of an artifact that is there: `evaluate` and `time_again` time it, `verify` compares it. `network_timing` and `kernel_source` serve a search.
"""
