"""Some mutants, one after another."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mutants.draw import mutant
from mutants.trial import ServingChildren, adopt_orphans, take
from mutants.watch import Ground
from tunefarm_tuning.process.warm import WARM


def run_share(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Take the mutants of these seeds through the import; return a line for each."""
    adopt_orphans()
    WARM.keep(0)  # a child that waits starts its successor during an import
    children = ServingChildren()
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        with ground.watch() as watch:
            for seed in seeds:
                drawn = mutant(seed, ground.aims)
                with children.serving():
                    outcome = take(drawn, ground, watch, kept=children.pids)
                first = outcome.word
                if outcome.word not in ("accepted", "refused"):
                    outcome = take(drawn, ground, watch)
                lines.append(
                    {
                        "seed": seed,
                        "network": drawn.network,
                        "changes": drawn.changes,
                        "first": first,
                        **asdict(outcome),
                    }
                )
            children.close()
    return lines
