"""The terms of a job and their meanings, which client, command, API and the pages' form share.

The names are those of the client and, with dashes, of the command. The API has other names for some (`API_LIMITS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unicodedata import normalize

TUNERS = ("xgb", "ga", "random", "grid", "evolutionary")
"""Names of the search strategies, the recommended one first."""

DEFAULT_TUNER = TUNERS[0]

PRECISIONS = (
    "as-model",
    "float16-weights",
    "bfloat16-weights",
    "int8-weights",
    "bfloat16",
    "float16",
    "int8",
)
"""Formats of stored weights, and of products; `tunefarm_tuning.workload.precision.Precision` explains them."""

PRIORITIES: Mapping[str, int] = {"low": -10, "normal": 0, "high": 10}
"""Names of priorities, each with its number."""

MAX_PRIORITY = 100
"""Largest priority; the smallest is its negative."""

BASELINES: Mapping[str, str] = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO, float32",
    "openvino_default": "OpenVINO, default precision",
    "litert": "LiteRT",
}
"""Runtimes that an artifact can be timed beside, by the names that they are asked for by; the first always is, where it can be."""

API_LIMITS: Mapping[str, str] = {
    "trials": "trials",
    "seconds": "wall_sec",
    "job_seconds": "job_sec",
    "patience": "patience_trials",
    "min_gain": "min_gain_per_min",
}
"""Names of the limits in the API's `budget`, by the names of the client and the command."""

STOPS: Mapping[str, str] = {
    "trials": "the limit of trials was reached",
    "wall_sec": "the time limit was reached",
    "patience_trials": "the limit of trials without a better kernel was reached",
    "min_gain_per_min": "the expected gain fell below the minimum gain",
    "exhausted": "the search space is exhausted",
    "no-search": "there was no search, as requested",
    "finished": "a user ended the search and asked for the artifact",
}
"""Why a search ended (`Job.stop_reason`)."""

NO_SEARCH = (
    "Without a search there is no budget: the artifact is compiled at once. Each kernel uses the best config on record, and stays "
    "untuned if there is no record."
)

HELP: Mapping[str, str] = {
    "target": "Target to compile for: a name (cuda/sm_90), TVM's text (llvm -mcpu=znver5 -num-cores=8) or JSON. By "
    "default, or if it is host: the target that the pool's devices report.",
    "device_key": "Pool of devices to measure on. Optional if there is only one.",
    "trials": "Number of trials over all kernels, failed ones included.",
    "seconds": "Seconds of search, without waiting for a device.",
    "job_seconds": "Seconds of the whole job: import, search, compile and checks, without waiting for a device. The search gets the "
    "time that the other steps are expected to leave, at least 15 %.",
    "minutes": "Minutes of the whole job, including import, compile and checks. If job seconds are given as well, the two are added.",
    "search_minutes": "Minutes of search; compiling and checking take extra time. If seconds are given as well, the two are added.",
    "patience": "Stop after this many trials in a row without a better kernel.",
    "min_gain": "Stop when a minute of search is expected to lower the model's latency by less than this share (0.01: "
    "one percent).",
    "tuner": f"Search strategy: {', '.join(TUNERS[:-1])} or {TUNERS[-1]}.",
    "seed": "Seed of the search.",
    "priority": f"{', '.join(PRIORITIES)}, or a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}: jobs with a higher "
    "priority get devices first, jobs of equal priority share them.",
    "precision": f"How weights are stored, and products computed. With {', '.join(PRECISIONS[:3])} or {PRECISIONS[3]} (for quantised "
    f"models), arithmetic stays float32. {PRECISIONS[4]} also computes products in bfloat16, on CPUs with AVX512_BF16 or Arm's bf16; "
    f"{PRECISIONS[5]} computes them in float16, on Arm CPUs with fp16. {PRECISIONS[6]} quantises the model on the samples and "
    "multiplies 8-bit integers, on CPUs with an int8 dot product (AVX2, VNNI; Arm's dotprod). The report shows the loss of accuracy. "
    "For CPUs.",
    "max_error": "Largest mean error that the precision may cause in an output, as a share of the output's root mean square (0.01: one "
    "percent). With int8, layers stay float32 until the error is within the limit, which is 0.05 by default; other precisions have no "
    "default limit. A job that exceeds the limit fails.",
    "other_shapes": "If the model's file leaves dimensions open, add code for shapes that are not tuned, which is slower than "
    "tuned code. Without it, the artifact refuses those shapes, and compiling takes less time. For CPUs.",
    "baselines": f"Other runtimes to time beside the artifact, if they are installed on the device: {', '.join(list(BASELINES)[1:-1])} (in "
    f"the precision that it chooses: bfloat16 on CPUs that have it) or {list(BASELINES)[-1]} (for TFLite files). ONNX Runtime is always "
    "timed. Each adds some seconds to the compile. For CPUs.",
    "search": f"Whether to search. {NO_SEARCH}",
}
"""The meaning of each term, in a sentence."""

BASELINES_HINT = (
    "A runtime must be installed on the device. OpenVINO's default precision is bfloat16 on CPUs that have it. LiteRT runs only TFLite "
    "files. Each adds some seconds to the compile."
)
"""What forms say of `BASELINES`, whose names they list."""

MAX_SWEEP_JOBS = 64
"""Most combinations of a sweep, with the files that were refused."""

SWEEP_RULE = (
    "Pools work side by side: each has all of the sweep's time, which its jobs share equally. All jobs share the trials equally. Patience "
    "and minimum gain apply to each job by itself. Other jobs do not get what a job leaves unused."
)
"""How the jobs of a sweep share its budget, whatever that is."""


def sweep_rule(budget: Mapping[str, Any], *, pools: int) -> str:
    """Return how the jobs of a sweep share this budget: what of `SWEEP_RULE` applies to it."""
    has_time = bool(budget.get("job_sec") or budget.get("wall_sec"))
    parts = []
    if has_time and pools > 1:
        parts.append(
            "Pools work side by side: each has all of the sweep's time, which its jobs share equally."
        )
    elif has_time:
        parts.append("The jobs share the time equally.")
    if budget.get("trials"):
        parts.append("All jobs share the trials equally.")
    shared = bool(parts)
    if own := [
        words
        for name, words in (("patience_trials", "Patience"), ("min_gain_per_min", "Minimum gain"))
        if budget.get(name)
    ]:
        parts.append(
            f"{' and '.join([own[0], *(w.lower() for w in own[1:])])} {'apply' if len(own) > 1 else 'applies'} to each job by itself."
        )
    if shared:
        parts.append("Other jobs do not get what a job leaves unused.")
    return " ".join(parts)


LABELS: Mapping[str, str] = {
    "tags": "Words to search for: up to 20, each of up to 40 letters, digits and . _ : / + = - between them. "
    "Upper and lower case are the same.",
    "note": "A text for people, up to 4,000 characters.",
}
"""The labels of jobs and models, which are no terms: they say nothing about the search."""


def plain_tag(text: str) -> str:
    """Return a tag as it is stored and compared: in small letters, and composed as far as Unicode can (NFC)."""
    return normalize("NFC", text.strip().lower())


def libraries_option(target: Mapping[str, Any]) -> str:
    """Return the option that lets libraries compute kernels of a job, ``"-libs=dnnl"``; an empty text where none may.

    `target_key` leaves them out: records do not depend on them.
    """
    names = target.get("libs") or ()
    return f"-libs={','.join(map(str, names))}" if names else ""


RUNTIMES: Mapping[str, str] = {**BASELINES, "torch_compile": "torch.compile"}
"""Other runtimes that artifacts are timed beside, by their keys in reports, in the order in which they are listed."""


def runtime_title(name: str, computes: str = "") -> str:
    """Return a runtime's name for people; of one that chooses its arithmetic, with what it chose."""
    title = RUNTIMES.get(name, name)
    return f"{title} ({computes})" if name == "openvino_default" and computes else title


COMPARED_TIMES = (
    "The best time per call that the job knew, from its own trials or from records of earlier jobs. A kernel that the job did not try "
    "has its time in the artifact."
)
"""What the times of kernels are where jobs are compared."""
