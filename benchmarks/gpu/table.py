"""Print the lines of the GPU benchmark as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.gpu.plan import COMPILED, TORCH, TUNED, UNTUNED, of, searched_sec

_HEAD = (
    (
        "| network | dtype | untuned (DLight) | tuned | PyTorch eager | torch.compile | tuned / torch.compile "
        "| untuned / tuned | search (s) | largest error |"
    ),
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
)
_NOTES = (
    "Milliseconds per inference at batch 1, inputs and outputs on the GPU, by its own events: the median of the samples. "
    "PyTorch is given channels last, cuDNN's own search, attention by `scaled_dot_product_attention`, and no TF32 "
    "(`--tf32` allows it); `torch.compile` is `max-autotune`. The error is tuned against ONNX Runtime's CPU provider, as a "
    "share of the outputs' root mean square."
)


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the results as a Markdown table, with a dash for each unknown figure."""
    pairs = dict.fromkeys((line["network"], line["dtype"]) for line in lines if "network" in line)
    rows = [_row(lines, network, dtype) for network, dtype in pairs]
    parts = [*_where(lines), *_HEAD, *rows, "", _NOTES, *_failures(lines)]
    return "\n".join(parts)


def _row(lines: Sequence[Mapping[str, Any]], network: str, dtype: str) -> str:
    measured = {part: of(lines, part, network, dtype) for part in (UNTUNED, TUNED, TORCH, COMPILED)}
    sec = {part: median(done[-1]["samples_sec"]) if done else None for part, done in measured.items()}
    tuned, untuned, compiled = sec[TUNED], sec[UNTUNED], sec[COMPILED]
    error = measured[TUNED][-1]["max_rel_error"] if measured[TUNED] else None
    cells = [
        *(_ms(sec[part]) for part in (UNTUNED, TUNED, TORCH, COMPILED)),
        f"{tuned / compiled:.2f}×" if tuned and compiled else "–",
        f"{untuned / tuned:.1f}×" if tuned and untuned else "–",
        f"{searched_sec(lines, network, dtype):.0f}",
        f"{error:.1e}" if error is not None else "–",
    ]
    return f"| {network} | {dtype} | {' | '.join(cells)} |"


def _ms(seconds: float | None) -> str:
    return f"{1e3 * seconds:.3f}" if seconds else "–"


def _where(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    machines = [line["machine"] for line in lines if line.get("kind") == "machine"]
    sentences = []
    if machines:
        gpu, torch = machines[-1]["gpu"], machines[-1]["torch"]
        sentences.append(f"{gpu.get('name', 'no GPU')}, driver {gpu.get('driver', '–')}.")
        if torch:
            sentences.append(f"PyTorch {torch['torch']}, CUDA {torch['cuda']}, cuDNN {torch['cudnn']}.")
        sentences += [f"Left out: {lack}." for lack in machines[-1]["lacks"]]
    return [" ".join(sentences), ""] if sentences else []


def _failures(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    failed = [line for line in lines if "failed" in line]
    if not failed:
        return []
    return [
        "",
        "What failed:",
        *(f"- {f['kind']} of {f['network']} {f['dtype']}: {f['failed']}" for f in failed),
    ]
