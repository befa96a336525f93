"""Tuners: ask for configs, tell their results.

`base` has the interface, `choice` the tuners by name. All are `search_tuner`s, which on GPUs learn what spills (`resources`): `baselines`,
`ga`, `evolutionary`, and `xgb` with its `annealing`.
"""

from __future__ import annotations

from tunefarm_text.job_terms import DEFAULT_TUNER, TUNERS
from tunefarm_tuning.tuner.base import TrialResult, Tuner, result_of_record
from tunefarm_tuning.tuner.choice import check_tuner_name, make_tuner, task_seed

__all__ = [
    "DEFAULT_TUNER", "TUNERS", "TrialResult", "Tuner", "check_tuner_name", "make_tuner", "result_of_record",
    "task_seed",
]  # fmt: skip
