"""How long the parts of a network that ONNX Runtime runs take, and what the report and the manifest say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_tuning.artifact.pack import part_file
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.timing_blocks import inferences_of_sample
from tunefarm_tuning.workload.model import entry_name
from tunefarm_tuning.workload.runtime_part import RuntimePart

_SAMPLES = 7
_METHOD = (
    "The artifact's network was timed once more, with a timer around each part. Shares are of the whole inference. Passing tensors "
    "between parts and compiled code counts as compiled code."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTimes:
    """Seconds per inference.

    Attributes:
        whole_sec: Of the whole network; a sample each.
        parts_sec: Of each part; empty if ONNX Runtime did not run them.
        missing: Why it did not; empty if it did.
    """

    whole_sec: tuple[float, ...]
    parts_sec: tuple[tuple[float, ...], ...]
    missing: str = ""


def time_parts(
    runner: DeviceRun, library: Path, inputs: Path, limits: CompileLimits, estimate_sec: float
) -> PartTimes:
    """Time a network and its parts.

    Raises:
        RunFailed: If the network crashed or exceeded its time.
    """
    number = inferences_of_sample(estimate_sec)
    params = {
        "path": str(library),
        "entry": entry_name(0),
        "inputs": str(inputs),
        "number": number,
        "repeat": _SAMPLES,
    }
    reply = runner.call("time_parts", params, timeout_sec=limits.model_sec)
    return PartTimes(
        whole_sec=tuple(reply["samples_sec"]),
        parts_sec=() if reply["missing"] else tuple(tuple(samples) for samples in reply["parts_sec"]),
        missing=str(reply["missing"]),
    )


def parts_report(parts: Sequence[RuntimePart], times: PartTimes | None) -> dict[str, Any]:
    """Return the report's section on what ONNX Runtime runs; empty for a network that is compiled whole."""
    if not parts or times is None:
        return {}
    seconds = [median(samples) for samples in times.parts_sec]
    return {
        "method": _METHOD,
        "parts": [
            {
                **_described(number, part),
                "reasons": [asdict(reason) for reason in part.reasons],
                "median_sec": seconds[number] if seconds else None,
                "share": _share(times.parts_sec[number], times.whole_sec) if seconds else None,
            }
            for number, part in enumerate(parts)
        ],
        "median_sec": median(times.whole_sec),
        "onnxruntime_share": _share(
            [sum(each) for each in zip(*times.parts_sec, strict=True)], times.whole_sec
        )
        if seconds
        else None,
        "not_timed": times.missing or None,
    }


def parts_manifest(parts: Sequence[RuntimePart]) -> list[dict[str, Any]]:
    """Return the manifest's list of parts."""
    return [
        {
            **_described(number, part),
            "inputs": [spec.to_json() for spec in part.inputs],
            "outputs": [spec.to_json() for spec in part.outputs],
        }
        for number, part in enumerate(parts)
    ]


def unforced_warning(unforced: str) -> str:
    """Return the warning of a network whose halves are right by themselves, but together return other values than the reference."""
    return (
        "fed by the compiled network, ONNX Runtime's parts return other values than in the reference, though each half is correct "
        f"by itself: output {unforced}. Differences within the tolerance decide what such a part sorts or selects"
    )


def random_warning(random_parts: Sequence[int]) -> str:
    """Return the warning of a network whose parts for ONNX Runtime return other values in every run."""
    files = ", ".join(part_file(number) for number in random_parts)
    return (
        f"{files}: its results are random, so two runs differ. The rest of the network was compared with the reference's random "
        "values in place of its own"
    )


def _share(parts_sec: Sequence[float], whole_sec: Sequence[float]) -> float:
    """Return the median share of the whole's samples; at most 1, since the clock around a part runs in a warm-up, too."""
    return min(1.0, median(part / whole for part, whole in zip(parts_sec, whole_sec, strict=True)))


def _described(number: int, part: RuntimePart) -> Mapping[str, Any]:
    return {
        "file": part_file(number),
        "nodes": len(part.nodes),
        "operators": [list(operator) for operator in part.operators],
    }
