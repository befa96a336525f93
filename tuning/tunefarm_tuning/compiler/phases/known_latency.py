"""What earlier compiles timed of the very same network: its baselines are not timed again, if it takes as long as it did there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from tunefarm_tuning.compiler.baselines import Baselines
from tunefarm_tuning.compiler.model_timing import SideBySide, time_models
from tunefarm_tuning.compiler.phases.build_model import BuiltModels
from tunefarm_tuning.compiler.request import CompileRequest
from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.core.latency import Latency, is_quiet
from tunefarm_tuning.measure.baselines.baseline import BaselineFacts
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.reference.onnx_runtime import InputSet

_KIND = "latency"
_ROUNDS = 5
_AS_LONG = 1.1
"""The network takes as long as before if its median is within this many times the earlier one, above and below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedBefore(JsonFields):
    """Latencies that an earlier compile measured side by side.

    Attributes:
        measured_at: When, in Unix seconds.
        again_sec: What the tuned network took this time.
    """

    measured_at: float
    again_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCacheEntry:
    """The latencies of a compile's networks, in one set of shapes, as an earlier compile measured and kept them.

    Attributes:
        request: The compile.
        built: The networks.
        input_set: The inputs that they are timed on.
        number: Of the set of shapes.
        threads: The number of threads.
        baseline: Whether ONNX Runtime is timed, too.
        baselines: Further runtimes that are.
    """

    request: CompileRequest
    built: BuiltModels
    input_set: InputSet
    number: int
    threads: int
    baseline: bool
    baselines: Baselines

    def known_latency(
        self, library: Path, runner: DeviceRun
    ) -> tuple[dict[str, Latency], TimedBefore, dict[str, BaselineFacts]] | None:
        """Return the latencies of an earlier compile, and the facts of baselines, if the tuned network takes as long as there; else None.

        Args:
            library: The tuned network.
            runner: Runs it.

        Raises:
            RunFailed: If the network crashed or exceeded its time.
        """
        facts, request = self._facts(), self.request
        known = None if facts is None else request.findings.peek(_KIND, facts)
        if (
            facts is None
            or known is None
            or not (known.get("quiet", True) or request.limits.ablation_sec == 0)
        ):
            return None
        latency = {str(name): Latency.from_json(json) for name, json in known["latency"].items()}
        network = SideBySide(
            device=runner,
            libraries={"tuned": library},
            inputs=self.input_set.inputs,
            entry=self.input_set.entry,
            threads=self.threads,
        )
        again = time_models(network, limits=request.limits, on_round=request.progress.step, rounds=_ROUNDS)[
            "tuned"
        ]
        ratio = again.median_sec / latency["tuned"].median_sec
        if not 1 / _AS_LONG <= ratio <= _AS_LONG:
            return None
        request.findings.find(_KIND, facts)
        noted = {
            name: replace(BaselineFacts.from_json(json), took_sec=0.0)
            for name, json in known.get("baselines", {}).items()
        }
        before = TimedBefore(measured_at=float(known["measured_at"]), again_sec=again.median_sec)
        return latency, before, {**self.baselines.facts, **noted}

    def note_latency(self, latency: Mapping[str, Latency]) -> bool:
        """Remember latencies that were measured side by side, and whether the device was quiet; unless a baseline failed.

        Returns:
            Whether a later compile takes them over.
        """
        facts, running = self._facts(), self.baselines.running
        if facts is None or not running.keys() <= latency.keys():
            return False
        finding = {
            "latency": {name: each.to_json() for name, each in latency.items()},
            "measured_at": time.time(),
            "quiet": is_quiet(list(latency.values())) is not False,
        }
        if running:
            finding["baselines"] = {name: each.facts.to_json() for name, each in running.items()}
        self.request.findings.note(_KIND, facts, finding)
        return bool(finding["quiet"])

    def _facts(self) -> dict[str, Any] | None:
        """Return what latencies depend on; None where they are always measured: on GPUs, on samples, beside runtimes of another machine."""
        request, built, versions = self.request, self.built, self.baselines.versions
        if (
            request.on_gpu
            or self.input_set.sample is not None
            or built.untuned.unscheduled
            or versions is None
        ):
            return None
        return {
            "device": "" if request.device is None else request.device.info.name,
            "onnxruntime": metadata.version("onnxruntime"),
            "file": request.model.sha256,
            "bindings": [each.binding.to_json() for each in request.model.each],
            "number": self.number,
            "precision": request.precision.value,
            "records": {
                name: [record.space_key, record.config.to_json()] for name, record in built.records.items()
            },
            "algorithms": dict(built.alternatives.algorithms),
            "libraries": built.alternatives.kernel_libraries,
            "threads": self.threads,
            "baseline": self.baseline,
            **({"baselines": dict(versions)} if versions else {}),
            "seed": request.seed,
        }
