"""The artifact: one file, ``NAME.tunefarm``, that holds a compiled model and all that is known about it.

It is a zip, and not a tar: the manifest is read without passing over the weights, each entry can be checked by itself,
and Python runs a zip directly (``python NAME.tunefarm --input x=x.npy``). Entries:

- ``lib.so``: the compiled network with its weights, stored without compression (random weights do not shrink);
- ``manifest.json``: inputs, outputs, target, versions, SHA-256 of each entry, records used, checks, latencies, coverage;
- ``report.json``: the evidence in full: raw samples, what fell back and why;
- ``records.jsonl``: the tuning records whose kernels are inside;
- ``loader.py`` and what it is made of (``container.py``, ``tunefarm_*.py``), ``__main__.py``: run it without tunefarm; ``README.md`` says how.
"""
