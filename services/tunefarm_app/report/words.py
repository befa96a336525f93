"""Explain stable names (outcomes, stop reasons, ...) in a sentence each."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "no-record": "no candidate for it has worked yet",
    "other-target": "what is on record holds for another target",
    "other-device-model": "what is on record holds for another kind of device",
    "other-toolchain": "what is on record was made by another compiler version",
    "space-changed": "its record is of an earlier version of its search space",
    "does-not-apply": "its record's schedule does not apply, or does not build",
    "crashed": "its tuned form crashed or ran over its time",
    "unchecked": "its untuned form could not be run, so there was nothing to compare with",
    "wrong-answer": "its tuned form gives another answer",
    "slower-than-untuned": "its tuned form is slower than the untuned one",
}
"""Why a task runs its untuned kernel (`tunefarm_tuning.records.coverage.MissReason`)."""

UNTUNABLE: Mapping[str, str] = {
    "symbolic-shape": "its shapes are not known before it runs",
    "extern-call": "it calls a library: there are no loops to change",
    "reshape": "it is a view of its input: nothing runs",
    "no-loops": "it computes a single number",
    "byte-dots": "it multiplies bytes by an instruction that the search does not know; its schedule is made by rule",
    "recurrent": "it goes step after step, in the one order that there is",
}
"""Why a kernel is no tuning task (`tunefarm_tuning.tvm.tasks.extract.NotTunable`)."""

OUTCOMES: Mapping[str, str] = {
    "ok": "built, ran, timed",
    "instantiation-error": "the schedule does not apply to the kernel",
    "build-error": "it does not compile",
    "build-timeout": "compiling took too long",
    "build-crash": "the compiler died of it",
    "run-error": "it failed when it was run",
    "run-timeout": "it ran too long",
    "run-crash": "it took the device's session down",
    "wrong-answer": "it computed something else",
    "infrastructure-error": "the device or its connection failed: not the candidate's fault, and tried again",
}
"""How a trial ended (`tunefarm_tuning.core.outcome.Outcome`)."""

STOPS: Mapping[str, str] = {
    "trials": "its trials are spent",
    "wall_sec": "its time is spent",
    "patience_trials": "no better kernel for as long as was asked for",
    "min_gain_per_min": "little is left to win",
    "exhausted": "nothing is left to try",
}
"""Why a search ended (`Job.stop_reason`)."""

METHODS: Mapping[str, str] = {
    "latency": "Latency",
    "untuned": "“Untuned”",
    "onnxruntime": "ONNX Runtime",
    "kernels": "Kernels by themselves",
    "outputs": "Outputs",
}
"""Titles of `JobReport.method`'s members."""
