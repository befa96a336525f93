"""The modules that import onnx and onnxruntime. They run only in child processes, because they read strangers' models.

In the order in which a file meets them:

1. `check_child` at the import: `rules` and `operators`, `standard_form`, the caller's shapes and values (`binding`, `bound_values`),
   `control_flow`, `constant_indices`, and ONNX's checker. Then ONNX Runtime runs the network once (`trial_run`, `shape_trials`); where it
   cannot, `proposals` looks for shapes with which it can.
2. `bound_network`: the network as everything after the first checks reads it (`model_file`, `bfloat16`).
3. TVM's importer (`tvm.frontend`), with names of ours (`sanitize`) and constants folded (`node_folding`). `parts` plans what ONNX Runtime
   runs of a network that cannot be compiled whole.
4. `reference_child` at the compile, with `reference`; on a GPU `gpu_baseline_child`.

Apart from it: `conversion_child` makes ONNX of other formats, `quantisation` a network of 8 bits. `graph_reading` serves all of them.
"""

from __future__ import annotations

import os

# ONNX Runtime 1.31 reports its use over the network unless this is set before it is imported; it also leaves a file
# (.ses) in the folder for temporary files. Calling its disable_telemetry_events() later is too late for the file.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
