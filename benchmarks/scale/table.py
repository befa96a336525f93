"""The table of a farm's throughput by its number of devices."""

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
_HEAD = (f"| {' | '.join(_COLUMNS)} |", "|" + "---:|" * len(_COLUMNS))

Line = Mapping[str, Any]


def make_table(lines: Iterable[Line]) -> str:
    """Return the report of the lines; of several lines of a cell the last one counts."""
    cells = {_kind(line): line for line in lines}
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in cells.values():
        groups.setdefault((*_kind(line)[:3], _sharing(line)), []).append(line)
    parts = ["# How big a farm", ""]
    for key in sorted(groups, key=str):
        group = sorted(groups[key], key=lambda line: line["asked"]["devices"])
        alone = [one for one in groups.get((*key[:3], False), []) if one["asked"]["devices"] == 1]
        one = (alone or group)[0]
        linear = _pace(one)
        parts += [_title(group[0]), "", *_HEAD, *(_row(line, linear) for line in group), ""]
        parts += [f"- {line}" for line in _notes(group, linear)] + [""]
    return "\n".join(parts)


def _kind(line: Line) -> tuple[Any, ...]:
    asked = line["asked"]
    return (asked["database"], asked["tuner"], asked["scale"], asked["devices"], asked["jobs"])


def _sharing(line: Line) -> bool:
    return line["asked"]["jobs"] == 1 and line["asked"]["devices"] > 1


def _title(line: Line) -> str:
    asked = line["asked"]
    jobs = "one job on all devices" if _sharing(line) else "one job per device"
    scale = "" if asked["scale"] == 1 else f", recorded seconds × {asked['scale']:g}"
    return f"## {asked['database']}, {jobs}, tuner {asked['tuner']}{scale}"


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
    full = [line["asked"]["devices"] for line in group if line["idle"] < 0.1]
    notes = [f"At least {AIM} of linear up to {max(reached)} devices."] if reached else []
    if full:
        notes.append(f"The machine's {group[0]['cores']} cores are used up from {min(full)} devices on.")
    if any(line.get("noisy") for line in group):
        notes.append("Others worked on the machine meanwhile: these figures are noisy.")
    return notes
