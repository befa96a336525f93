"""A farm with a replayed compiler that writes reports like the real one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from app_farm import Farm

from tunefarm_app.engines.interface import CompiledFile
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_tuning.compiler.kernel_validation import CheckedKernel, missed
from tunefarm_tuning.compiler.model_comparison import ModelComparison
from tunefarm_tuning.compiler.report import (
    Environment,
    KernelEvidence,
    LatencyEvidence,
    OutputEvidence,
    make_report,
)
from tunefarm_tuning.compiler.session import KernelInfo, UntunableKernel
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.history import History
from tunefarm_tuning.reference.comparison import Comparison
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.reference.random_inputs import InputKind

HOSTILE = (
    "<script>alert('x')</script>\"><img src=https://example.org/x onerror=alert(1)>\x1b[31m\u202e&amp;{{7*7}}"
)
"""Markup, an escape sequence, a direction override, and what a template would work out."""


class ReportingEngine(ReplayEngine):
    """Implements `Engine`: of a job's kernels, by their keys, the first is tuned, the second too slow, the others have no record.

    Args:
        name: Of every kernel and output in the report; their own where it is left out.
        message: What the misses say.
        changes: Members of the report, to be put in place of what they were.
    """

    def __init__(self, *, name: str | None = None, message: str = "why not", **changes: Any) -> None:
        super().__init__()
        self._name = name
        self._message = message
        self._changes = changes

    def compile(self, *args: Any, **named: Any) -> CompiledFile:
        compiled = super().compile(*args, **named)
        report = {**self._report(args[2]), **self._changes}
        manifest = {
            **compiled.manifest,
            "device_model": "replay-cpu",
            "machine": "x86_64",
            "cpu_features": ["avx2"],
            "coverage": report["coverage"],
        }
        compiled.path.write_text(json.dumps({"manifest": manifest, "report": report}), encoding="utf-8")
        return replace(compiled, manifest=manifest, report=report)

    def _report(self, history: History) -> dict[str, Any]:
        best = {record.workload_key: record for record in history.records}
        kernels = []
        for number, key in enumerate(sorted(best)):
            task = KernelInfo(
                workload_key=key, names=(self._name or f"kernel_{number}",), weight=number + 1, args=()
            )
            timed = {"comparisons": [], "tuned_sec": [2e-4, 1e-4, 3e-4], "untuned_sec": [0.01]}
            if number == 0:
                kernels.append(CheckedKernel(task=task, record=best[key], miss=None, evidence=timed))
            elif number == 1:
                slow = missed(task, MissReason.SLOWER_THAN_UNTUNED, self._message)
                timed = {"comparisons": [], "tuned_sec": [5e-6, 6e-6], "untuned_sec": [4e-6, 3e-6]}
                kernels.append(CheckedKernel(task=task, record=best[key], miss=slow, evidence=timed))
            else:
                none = missed(task, MissReason.NO_RECORD, self._message)
                kernels.append(CheckedKernel(task=task, record=None, miss=none))
        return make_report(
            kernels=KernelEvidence(
                kernels=kernels,
                not_tunable=[UntunableKernel(name=self._name or "reshape", weight=1, reason="reshape")],
            ),
            outputs=OutputEvidence(comparison=self._comparison()),
            latencies=LatencyEvidence(
                latency={
                    "onnxruntime": Latency.of([0.002, 0.0021, 0.0019], 2, [50, 50, 50]),
                    "untuned": Latency.of([0.0301], 2, [1]),
                    "tuned": Latency.of([0.00112, 0.00115, 0.0011], 2, [90, 90, 90]),
                }
            ),
            environment=Environment(device_model="replay-cpu", this_machine=True, threads=2, seed=7),
            warnings=[self._name] if self._name else [],
            phases_sec={"load": 1.5, "measure": 2.25},
        )

    def _comparison(self) -> ModelComparison:
        output = Comparison(
            name=self._name or "y",
            dtype="float32",
            ok=True,
            max_abs_error=1.25e-5,
            max_rel_error=3.5e-6,
            rtol=1e-3,
            mismatches=0,
            elements=1000,
            comparable=990,
        )
        nowhere: Any = None
        inputs = InputSet(kind=InputKind.NORMAL, seed=7, inputs=nowhere, expected=nowhere)
        return ModelComparison(sets=((inputs, (output,)),))


def finished_job(
    farm: Farm, engine: ReplayEngine, *, name: str = "net.onnx", **scenario: Any
) -> tuple[Farm, str]:
    """Tune three kernels, one of five candidates failing, and return the farm with that engine and the job's ID."""
    farm = farm.with_engine(engine)
    farm.add_device(
        info={"cpu": "Replay 9000", "cores": 2, "hostname": "secret-host", "machine_id": "secret-id"}
    )
    model = farm.upload(Scenario(tasks=3, failing=0.2, **scenario), name=name)
    farm.run()
    job = farm.submit(farm.model(model.id), trials=24, seed=5)
    farm.run()
    return farm, job.id


UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def seconds_in(text: str) -> float:
    match = re.match(r"(−?[0-9.]+) (s|ms|µs|ns)\b", text)
    assert match is not None, text
    return float(match[1].replace("−", "-")) * UNITS[match[2]]


def approx(value: float | None) -> Any:
    assert value is not None
    return pytest.approx(value, rel=0.01)
