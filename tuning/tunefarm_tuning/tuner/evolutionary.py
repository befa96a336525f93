"""MetaSchedule's own evolutionary search, for comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from tunefarm_tuning.process.child import ChildProcess
from tunefarm_tuning.process.errors import ChildFailed
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.tuner.base import TrialResult
from tunefarm_tuning.tuner.search_tuner import SearchTuner
from tunefarm_tuning.workload.task import TuningTask

_TIMEOUT_SEC = 600.0  # one generation of a large convolution takes half a minute on a slow core


class EvolutionaryTuner(SearchTuner):
    """Proposes configs from TVM's ``EvolutionarySearch`` with its ``XGBModel``, which run in a child process.

    Candidates come in generations of `batch_size`; unused ones are kept for the next round.

    A generation takes seconds to a minute: stock MetaSchedule spends most of its time here.

    State: A tuner rebuilt from results knows all of them, but TVM's random numbers start again: its proposals differ
    from those of the old tuner.
    Failure: If the child dies, it is restarted and told all results. If it dies again, `ask` raises.
    """

    name: ClassVar[str] = "evolutionary"

    def __init__(self, space: ConfigSpace, task: TuningTask, *, seed: int = 0, batch_size: int = 16) -> None:
        super().__init__(space, seed=seed)
        self._task = task
        self._batch_size = batch_size
        self._child = ChildProcess("tunefarm_tuning.tvm.children.evolutionary", limits=ChildLimits())
        self._opened = False
        self._unsent: list[TrialResult] = []
        self._queue: list[Config] = []

    def _propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:  # noqa: ARG002  (TVM's own chance)
        for _ in range(4):  # a generation may have no new config
            while self._queue:
                yield self._queue.pop(0)
            self._queue = self._generation()

    def _learn(self, results: Sequence[TrialResult]) -> None:
        self._unsent += results

    def _generation(self) -> list[Config]:
        try:
            return self._ask_child()
        except ChildFailed:
            self._opened = False
            self._unsent = list(self.results)
            return self._ask_child()

    def _ask_child(self) -> list[Config]:
        if not self._opened:
            target = self._task.target.to_json()
            opening = {"ir": self._task.workload.ir, "target": target, "seed": self.seed}
            self._child.call("open", {**opening, "batch_size": self._batch_size}, timeout_sec=_TIMEOUT_SEC)
            self._opened = True
        if self._unsent:
            results = [[r.config.to_json(), r.cost_sec] for r in self._unsent]
            self._child.call("learn", {"results": results}, timeout_sec=_TIMEOUT_SEC)
            self._unsent = []
        proposals = self._child.call("propose", {}, timeout_sec=_TIMEOUT_SEC)
        return [Config.from_json(config) for config in proposals]

    def close(self) -> None:
        """End the child, from any thread. The tuner cannot be used afterwards."""
        self._child.close()
