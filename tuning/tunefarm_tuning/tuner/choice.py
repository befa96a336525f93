"""Tuners by name."""

from __future__ import annotations

import hashlib
from difflib import get_close_matches

from tunefarm_text.job_terms import TUNERS
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.tuner.base import Tuner
from tunefarm_tuning.workload.task import TuningTask


def check_tuner_name(name: str) -> str:
    """Return `name` if a tuner has it.

    Raises:
        InvalidInputError: With code ``unknown-tuner``; the message lists the nearest names, or all.
    """
    if name in TUNERS:
        return name
    near = get_close_matches(name.lower().removesuffix("tuner"), TUNERS, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(TUNERS)}"
    raise InvalidInputError(
        f"there is no tuner {clean(name)!r}; {hint}",
        code="unknown-tuner",
        tuner=clean(name),
        known=list(TUNERS),
    )


def task_seed(seed: int, task: TuningTask) -> int:
    """Return the seed of one task of a run: tasks differ, and no task depends on the others or their order."""
    digest = hashlib.sha256(f"{seed}:{task.workload.key}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def make_tuner(
    name: str,
    task: TuningTask,
    space: ConfigSpace,
    *,
    seed: int = 0,
    num_threads: int = 1,
    use_prior: bool = True,
) -> Tuner:
    """Return a new tuner. The caller closes it.

    Args:
        name: One of `TUNERS`.
        task: Task to tune.
        space: Config space of the task, as `Builder.config_space` returns it.
        seed: Seed, used unchanged; `task_seed` makes one for a task.
        num_threads: Number of threads of the cost model, if the tuner has one.
        use_prior: Whether the cost model starts from the shipped prior.

    Raises:
        InvalidInputError: If the tuner is unknown.
    """
    check_tuner_name(name)
    if name == "random":
        from tunefarm_tuning.tuner.baselines import RandomTuner

        return RandomTuner(space, seed=seed)
    if name == "grid":
        from tunefarm_tuning.tuner.baselines import GridSearchTuner

        return GridSearchTuner(space, seed=seed)
    if name == "ga":
        from tunefarm_tuning.tuner.ga import GATuner

        return GATuner(space, seed=seed)
    if name == "evolutionary":
        from tunefarm_tuning.tuner.evolutionary import EvolutionaryTuner

        return EvolutionaryTuner(space, task, seed=seed)
    from tunefarm_tuning.tuner.xgb import XGBTuner

    return XGBTuner(space, seed=seed, num_threads=num_threads, use_prior=use_prior)
