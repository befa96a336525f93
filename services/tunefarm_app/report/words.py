"""Sentences that explain stable names: outcomes, stop reasons and others."""

from __future__ import annotations

from collections.abc import Mapping

UNTUNABLE: Mapping[str, str] = {
    "symbolic-shape": "its shapes are known only at run time",
    "extern-call": "it calls a library and has no loops to schedule",
    "reshape": "it is a view of its input and runs nothing",
    "no-loops": "it computes a single number",
    "byte-dots": "it uses a dot product instruction that the search does not support; rules make its schedule",
    "recurrent": "its steps depend on each other and have a fixed order",
    "attention": "it computes an attention some rows at a time; rules make its schedule",
    "pointwise-depthwise": "it computes two convolutions some rows at a time; rules make its schedule",
}
"""Why a kernel is no tuning task (`tunefarm_tuning.tvm.tasks.extract.NotTunable`)."""

OUTCOMES: Mapping[str, str] = {
    "ok": "built and measured",
    "instantiation-error": "the schedule does not apply to the kernel",
    "build-error": "it does not compile",
    "build-timeout": "compiling took too long",
    "build-crash": "the compiler crashed",
    "resource-error": "it needs more registers or memory than the GPU has, by its machine code; it was not run",
    "run-error": "it failed at run time",
    "run-timeout": "it ran too long",
    "run-crash": "it crashed the device's session",
    "wrong-answer": "it computed a wrong result",
    "infrastructure-error": "the device or its connection failed; the candidate is tried again",
}
"""How a trial ended (`tunefarm_tuning.core.outcome.Outcome`)."""

METHODS: Mapping[str, str] = {
    "latency": "Latency",
    "untuned": "“Untuned”",
    "onnxruntime": "ONNX Runtime",
    "baselines": "Other runtimes",
    "kernels": "Single kernels",
    "outputs": "Outputs",
}
"""Titles of `JobReport.method`'s members."""
