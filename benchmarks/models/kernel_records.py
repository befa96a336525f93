"""Find the records of a model's kernels, and build the library that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tunefarm_tuning import History, TuningRecord, load_records
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.records.selection import pick_best
from tunefarm_tuning.target.host import host_device_model
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelState:
    """The tuning state of a kernel of a network. `cost_sec` is the cost of its record, or None."""

    tunable: bool
    cost_sec: float | None = None
    why_untuned: str = ""


def read_records(paths: Iterable[Path]) -> list[TuningRecord]:
    """Return all records of files, and of the files in folders."""
    files = [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    return [record for file in files for record in load_records(file)]


def build_from_records(
    model: Model, target: Target, records: Iterable[TuningRecord], library: Path
) -> dict[str, KernelState]:
    """Build a network with the best record of each kernel, unchecked; return the states of its kernels.

    A record counts whichever number of cores the machine had when it was made: pinned to a core, it has one.
    """
    known = list(records)
    history = History(known)
    by_workload: dict[str, list[TuningRecord]] = {}
    for record in pick_best(known):
        if (record.target_key, record.toolchain) == (target.key, toolchain_key()):
            by_workload.setdefault(record.workload_key, []).append(record)
    with closing(CompileSession(model, target, library.parent, CompileLimits())) as session:
        loaded = session.load()
        states = {kernel.name: KernelState(tunable=False) for kernel in loaded.not_tunable}
        chosen: dict[str, TuningRecord] = {}
        for task in loaded.tasks:
            record, why, _ = history.find(
                task.workload_key,
                target_key=target.key,
                device_model=host_device_model(),
                toolchain=toolchain_key(),
            )
            others = by_workload.get(task.workload_key, [])
            record = record or min(others, key=lambda other: other.cost_sec or float("inf"), default=None)
            for name in task.names:
                if record is None:
                    states[name] = KernelState(tunable=True, why_untuned=why.value if why else "")
                else:
                    chosen[name] = record
                    states[name] = KernelState(tunable=True, cost_sec=record.cost_sec)
        session.build_model(library, chosen)
    return states


def states_of_artifact(
    manifest: Mapping[str, object], report: Mapping[str, object]
) -> dict[str, KernelState]:
    """Return the states of an artifact's kernels."""
    states: dict[str, KernelState] = {}
    for kernel in _rows(report, "not_tunable"):
        states[kernel["name"]] = KernelState(tunable=False)
    coverage = report.get("coverage")
    for miss in _rows(coverage, "misses"):
        states[miss["name"]] = KernelState(tunable=True, why_untuned=miss["reason"])
    for record in _rows(manifest, "records"):
        states[record["name"]] = KernelState(tunable=True, cost_sec=record["cost_sec"])
    for kernel in _rows(report, "kernels"):  # one workload may be in the network under several names
        known = next((states[name] for name in kernel["names"] if name in states), None)
        if known is not None:
            states |= dict.fromkeys(kernel["names"], known)
    return states


def _rows(data: object, key: str) -> list[dict[str, object]]:
    return data[key] if isinstance(data, Mapping) and key in data else []
