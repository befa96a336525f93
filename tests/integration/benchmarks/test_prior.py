"""The prior is fitted on no workload that a benchmark measures."""

from __future__ import annotations

import json
import lzma

import pytest
from benchmarks.prior.fit import TRIALS
from benchmarks.search.tasks import MODELS, model_tasks

from tunefarm_tuning.space.config_space import ConfigSpace

pytestmark = pytest.mark.exhaustive


def test_no_workload_of_the_benchmarks_is_among_the_priors() -> None:
    with lzma.open(TRIALS, "rt", encoding="utf-8") as lines:
        fitted = [json.loads(line) for line in lines]
    assert len({prior["workload"] for prior in fitted}) >= 64
    assert all(ConfigSpace.from_json(prior["space"]).computation is not None for prior in fitted)
    measured = {task.workload.key for model in MODELS for task in model_tasks(model)}
    assert len(measured) > 40
    assert not measured & {prior["workload"] for prior in fitted}
