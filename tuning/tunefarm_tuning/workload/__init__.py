"""Models, their workloads and tuning tasks, and the precision of their weights.

- A network: `model`; what its file leaves open: `binding` (as text: `binding_text`), `shapes`, `open_shape`; a `runtime_part` of it is not
  compiled. `precision` and `quantisation` say how its weights are stored, and what it computes in.
- A kernel: `task`, with the `computation` of its main block.
- `revisions` says when to derive all of it again.
"""
