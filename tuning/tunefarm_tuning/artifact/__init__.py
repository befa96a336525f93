"""The artifact: a file, ``NAME.tunefarm``, with a compiled model and its documentation.

It is a zip file: the manifest is read without reading the weights, each entry has its own checksum, and Python runs a zip
directly (``python NAME.tunefarm --input x=x.npy``). Entries:

- ``lib.so``: the compiled network with its weights, stored without compression (random weights do not shrink);
- ``manifest.json``: inputs, outputs, target, versions, SHA-256 of each entry, records used, checks, latencies, coverage;
- ``report.json``: the evidence in full: raw samples, what fell back and why;
- ``records.jsonl``: the tuning records whose kernels are inside;
- ``loader.py`` with its modules (``container.py``, ``tunefarm_*.py``) and ``__main__.py``: they run the artifact without tunefarm;
- ``README.md``: says how.

`pack` writes it; `pack.PROGRAMS` lists the modules of this package that are copied into it, and under which names.

Running it: `loader.load` opens it (`session`: the same as ONNX Runtime's session, `command`: the shell). `model` opens the zip
(`container`), checks that it can run here (`machine_check`), loads what its kernels call (`cuda_runtime`, `onednn_library`,
`onnxruntime_parts` with `part_calls`) and chooses `threads`. A call turns inputs into `arrays`, finds the function for their shapes
(`specialisations`, `other_shapes`, with `sizes`) or several calls of one (`batches`), and runs it (`entry`). The engine itself looks into
one by `reading`; `pack` writes `readme` too.
"""
