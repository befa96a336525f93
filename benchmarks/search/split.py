"""Split the seconds of a run into phases, for tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PARTS = ("propose", "fit", "apply", "build", "measure", "start", "wait")
HEAD = (*PARTS, "propose+fit+apply")


def split_of(sec: Mapping[str, float], wall_sec: float) -> dict[str, float]:
    """Return the parts of the wall-clock time from the sums of a `Clock`.

    Candidates are applied inside of their builds: by as large a share of them as in the sum over all candidates.
    """
    ask, fit, build, cpu = (sec.get(name, 0.0) for name in ("ask", "fit", "build", "build_cpu"))
    apply = build * sec.get("apply_cpu", 0.0) / cpu if cpu else 0.0
    parts = {
        "propose": ask + sec.get("tell", 0.0) - fit,
        "fit": fit,
        "apply": apply,
        "build": build - apply,
        "measure": sec.get("measure", 0.0),
        "start": sec.get("space", 0.0),
    }
    return {**parts, "wait": wall_sec - sum(parts.values())}


def split_cells(runs: Iterable[tuple[float, Mapping[str, float]]]) -> list[str]:
    """Return `HEAD`'s cells: per cent of the wall-clock of all runs, each given as ``(wall_sec, split_sec)``."""
    runs = list(runs)
    wall = sum(wall_sec for wall_sec, _ in runs)
    total = {part: sum(split.get(part, 0.0) for _, split in runs) for part in PARTS}
    overhead = total["propose"] + total["fit"] + total["apply"]
    return [f"{100 * sec / wall:.1f}" for sec in (*total.values(), overhead)]
