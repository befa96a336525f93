"""The phases of a compile: each takes earlier results and returns a frozen one. `compiler.job` runs them.

In the order of `request.PHASES`: `load` (with `untuned`), `check_kernels`, `build_model`, `check_model` (with `segments_check`), `measure`
(with `known_latency` and `partly_untuned`), `prove_batches`, `other_shapes` (with `shapes_to_compare`), `pack` (with `manifest` and
`shape_reports`).
"""
