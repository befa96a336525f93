"""Measuring the few best again, side by side, before a winner is named.

The best of many noisy measurements is too good to be true: it was also the luckiest. Timed again in turn, the few
best meet the same machine, and their order can be trusted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput, MeasureOption
from tunefarm_tuning.search.trial_outcome import TrialOutcome, trial_outcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask

CONFIRM_ROUNDS = 10


def confirm_best(
    task: TuningTask,
    configs: Sequence[Config],
    option: MeasureOption,
    *,
    space_key: str,
    rounds: int = CONFIRM_ROUNDS,
) -> tuple[TrialOutcome, ...]:
    """Build and measure configs again, in turn: A B C, A B C, ...

    Args:
        task: Whose configs they are.
        configs: As applied; the few best of their trials.
        option: Who builds (what was built lately costs nothing) and who measures.
        space_key: Of the space that the configs are points of.
        rounds: Samples of each.

    Returns:
        One outcome per config, in order, with all its samples. Its record has ``extra["confirmed"]`` (unless the
        device failed), and is what the config is judged by from then on.
    """
    builds = option.builder.build([BuildInput(task=task, config=config) for config in configs])
    try:
        inputs = {
            i: MeasureInput(task=task, artifact_path=build.artifact_path)
            for i, build in enumerate(builds)
            if build.artifact_path is not None
        }
        results = option.runner.run_interleaved(list(inputs.values()), rounds=rounds)
        measured = dict(zip(inputs, results, strict=True))
    finally:
        for build in builds:
            if build.artifact_path is not None:
                build.artifact_path.unlink(missing_ok=True)
    now = time.time()
    return tuple(
        trial_outcome(config, build, measured.get(i), measured_at=now, space_key=space_key, confirmed=True)
        for i, (config, build) in enumerate(zip(configs, builds, strict=True))
    )
