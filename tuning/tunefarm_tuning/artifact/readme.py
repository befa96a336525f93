"""Writes the README inside an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tunefarm_tuning.artifact.sizes import shape_text
from tunefarm_tuning.core.untrusted_text import clean


def readme_text(manifest: Mapping[str, Any]) -> str:
    """Return the README's text: what the artifact is, and how to run it."""
    name = clean(str(manifest["name"]), 80)
    file = f"{name}.tunefarm"
    versions = manifest["versions"]
    inputs, outputs = manifest["inputs"], manifest["outputs"]
    arguments = " ".join(f"--input input_{i}.npy" for i in range(len(inputs)))
    return f"""# {name}

A neural network, compiled and tuned by tunefarm for `{clean(manifest["target_key"], 200)}`.

Inputs:

{_table(inputs)}

Outputs:

{_table(outputs)}

{_shapes(manifest)}{_parts(manifest)}## Run it

    pip install apache-tvm=={versions["apache-tvm"]} apache-tvm-ffi=={versions["apache-tvm-ffi"]} numpy{_more(manifest)}

From the shell, each input in a .npy file:

    python {file} {arguments} --output-dir out

From Python:

    import sys
    sys.path.insert(0, "{file}")
    from loader import load
    model = load("{file}")
    outputs = model(x)             # arrays in the order above, or by name: model(**{{"name": x}})
    outputs = model.batched(xs)    # any number of samples, stacked

In the place of ONNX Runtime's session:

    from loader import InferenceSession
    session = InferenceSession("{file}")
    outputs = session.run(None, {{"name": x}})

It was tuned for {_threads(manifest)}; `load("{file}", threads=N)` runs it on another number, and warns. From C++, link TVM's runtime
and load the library: `from loader import extract_library; extract_library("{file}", "lib.so")`.

With tunefarm installed, `tunefarm.load("{file}")` and `tunefarm run {file}` do the same; its docs/artifact.md has the details.

`manifest.json` holds the checks, latencies and versions; `report.json` the evidence in full; `records.jsonl` the tuning
records of the kernels inside. The file is a zip; it holds native code, so run it only if you trust where it comes from.
"""


def _table(specs: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(f"    {clean(s['name'], 80)}: {s['dtype']} {shape_text(s['shape'])}" for s in specs)


def _shapes(manifest: Mapping[str, Any]) -> str:
    """Return the table of an artifact's shapes; empty if it has only one."""
    items = manifest.get("specialisations")
    if not items:
        return ""
    rows = []
    for item in items:
        shapes = ", ".join(f"{clean(spec['name'], 80)} {list(spec['shape'])}" for spec in item["inputs"])
        batches = f"; also batch {', '.join(map(str, item['batches']))}" if item.get("batches") else ""
        latency = f"; {item['latency_sec'] * 1e3:.3f} ms" if item.get("latency_sec") else ""
        rows.append(f"    {shapes}{batches}{latency}")
    text = "\n".join(rows)
    return (
        "The shapes above are the most important ones. The artifact holds code for each of these; a call runs the one of its "
        f"inputs' shapes (`model.shapes` lists them):\n\n{text}\n\n"
    )


def _threads(manifest: Mapping[str, Any]) -> str:
    threads = manifest.get("threads") or 1
    return f"{threads} thread{'s' if threads != 1 else ''}"


def _more(manifest: Mapping[str, Any]) -> str:
    packages = " nvidia-cuda-runtime" if manifest["target"]["kind"] == "cuda" else ""
    return packages + (" onnxruntime" if manifest.get("parts") else "")


def _parts(manifest: Mapping[str, Any]) -> str:
    """Return the paragraph on what ONNX Runtime runs; empty for a network that is compiled whole."""
    parts = manifest.get("parts") or []
    if not parts:
        return ""
    listed = "\n".join(f"    {part['file']}: {clean(_part_text(part), 300)}" for part in parts)
    return f"""ONNX Runtime runs a part of this network, inside the artifact; the rest is compiled:

{listed}

"""


def _part_text(part: Mapping[str, Any]) -> str:
    """Return the operators of a part in words: ``2 Gather, NonMaxSuppression``."""
    return ", ".join(f"{count} {name}" if count > 1 else str(name) for name, count in part["operators"])
