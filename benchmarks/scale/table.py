"""Print the table of a farm's throughput by its number of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PARTS = ("api", "workers", "broker", "database")
AIM = 0.9
_COLUMNS = (
    "devices",
    "trials/s",
    "of linear",
    "devices at work",
    "ms of a trial beside the recorded ones",
    *(f"CPU ms per trial: {name}" if name == "api" else name for name in PARTS),
    "all",
    "processors in use",
    "of that others'",
    "memory (MiB)",
    "processes",
)
_HOW = (
    "Farms of real processes (Valkey, API, Celery workers) with devices that replay 480 recorded trials of ResNet-18, each for",
    "as long as it took. *Devices at work* is the share of their time in which devices build and measure what was recorded; linear is",
    "where that share stays as it is with one device. Memory counts what processes share once.",
    "",
    "Command: `python -m benchmarks.scale.run lines.jsonl --devices … [--database postgresql] [--jobs 1]`, then `--table`.",
)
_HEAD = (f"| {' | '.join(_COLUMNS)} |", "|" + "---:|" * len(_COLUMNS))

Line = Mapping[str, Any]


def make_table(lines: Iterable[Line]) -> str:
    """Return the report of the lines; of several lines of a cell the last one counts."""
    cells = {_kind(line): line for line in lines}
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in cells.values():
        groups.setdefault((*_kind(line)[:3], _sharing(line)), []).append(line)
    parts = ["# How big a farm", "", *_HOW, ""]
    for key in sorted(groups, key=str):
        group = sorted(groups[key], key=lambda line: line["asked"]["devices"])
        alone = [line for line in groups.get((*key[:3], False), []) if line["asked"]["devices"] == 1]
        base = (alone or group)[0]
        linear = _pace(base)
        parts += [_title(group[0]), "", *_HEAD, *(_row(line, linear) for line in group), ""]
        parts += [f"- {line}" for line in _notes(group, linear)] + [""]
    return "\n".join(parts)


def _kind(line: Line) -> tuple[Any, ...]:
    cell = line["asked"]
    return (cell["database"], cell["tuner"], cell["scale"], cell["devices"], cell["jobs"])


def _sharing(line: Line) -> bool:
    return line["asked"]["jobs"] == 1 and line["asked"]["devices"] > 1


def _title(line: Line) -> str:
    cell = line["asked"]
    jobs = "one job on all devices" if _sharing(line) else "one job per device"
    scale = "" if cell["scale"] == 1 else f", recorded seconds × {cell['scale']:g}"
    return f"## {cell['database']}, {jobs}, tuner {cell['tuner']}{scale}"


def _row(line: Line, linear: float) -> str:
    per_trial = [_cpu_ms(line, name) for name in PARTS]
    memory = sum(part["pss_bytes"] for part in line["usage"].values()) / 2**20
    processes = sum(part["processes"] for part in line["usage"].values())
    cells = [
        f"{line['asked']['devices']}",
        f"{line['per_sec']:.2f}",
        f"{_pace(line) / linear:.2f}",
        f"{_pace(line):.2f}",
        f"{1000 * (line['trial_sec'] - line['recorded_sec']):.1f}",
        *(f"{used:.1f}" for used in per_trial),
        f"{sum(per_trial):.1f}",
        f"{1 - line['idle']:.0%}",
        f"{line['elsewhere']:.0%}",
        f"{memory:.0f}",
        f"{processes}",
    ]
    return f"| {' | '.join(cells)} |"


def _pace(line: Line) -> float:
    """Return the share of their time that devices are at work.

    Linear is where it stays the same: trials take different times, and so the trials per second of two cells, which
    come upon different ones, cannot be compared.
    """
    return float(line["recorded_sec"]) / float(line["trial_sec"])


def _cpu_ms(line: Line, part: str) -> float:
    used = line["usage"].get(part)
    return 0.0 if used is None else used["cpu_sec"] * 1000 / max(line["per_sec"] * line["watched_sec"], 1e-9)


def _notes(group: list[Line], linear: float) -> list[str]:
    reached = [line["asked"]["devices"] for line in group if _pace(line) / linear >= AIM]
    notes = [f"At least {AIM} of linear up to {max(reached)} devices."] if reached else []
    largest = group[-1]
    used = sum(part["cpu_sec"] for part in largest["usage"].values()) / largest["watched_sec"]
    devices, cores = largest["asked"]["devices"], largest["cores"]
    notes.append(f"With {devices} devices the farm uses {used:.2f} of the machine's {cores} cores.")
    if any(line.get("noisy") for line in group):
        notes.append("Others worked on the machine meanwhile, as the column says: these figures are noisy.")
    if any(line.get("nice", 0) < 0 for line in group):
        notes.append("The farm's processes had a higher priority than theirs (`nice -n -15`).")
    return notes
