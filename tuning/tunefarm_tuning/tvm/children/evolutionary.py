"""Child process of `tuner.evolutionary`: MetaSchedule's own evolutionary search, driven from outside.

Everything is stock: population, mutators but one, per-store features, the XGBoost model that is random before its 100th
sample. Only building and measuring are ours, as for every other tuner. The omitted mutator changes how many parallel
jobs a kernel may have (2 % of mutations); that is no decision of a trace, and so no part of a config.

Handlers:

- `open`: ``ir``, ``target``, ``seed``, ``batch_size`` -> null. Starts the search; a child serves one.
- `propose`: {} -> configs of the next generation; empty if the search has ended.
- `learn`: ``results``: pairs of a config and its cost in seconds, null for a failure -> null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from tunefarm_tuning.core.errors import InvalidInputError, InvariantError
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.space.design_space import DesignSpace
from tunefarm_tuning.tvm.space.knobs import instructions_of

_MAX_TRIALS = 1 << 30
_MAX_SEED = 2**31 - 1
_FAILED_SEC = 1e10  # MetaSchedule's time of a failure
_search: Search | None = None  # one per process: the child serves one tuner


class Search:
    """An evolutionary search over a workload, in generations of `batch_size` candidates."""

    def __init__(self, ir: str, target: Target, seed: int, batch_size: int) -> None:
        self._space = DesignSpace(module_from_text(ir), target)
        self._mod = self._space.module
        stock_seed = seed % (_MAX_SEED - 1) + 1
        np.random.seed(stock_seed)  # the stock model scores at random before it has seen enough
        self._context = ms.TuneContext(
            self._mod,
            target=self._space.context.target,
            space_generator=_without_parallel_mutator(self._space.context.space_generator),
            search_strategy="evolutionary",
            num_threads=1,
            rand_state=stock_seed,
        )
        sketches = self._context.generate_design_space()
        self._sketch_of = {instructions_of(sketch.trace): number for number, sketch in enumerate(sketches)}
        if len(self._sketch_of) != len(sketches):
            raise InvariantError("two sketches of the workload have the same trace")
        self._args_info = ms.arg_info.ArgInfo.from_entry_func(self._mod, remove_preproc=True)
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(self._mod)
        self._model = ms.cost_model.XGBModel(num_tuning_cores=1, verbose_eval=0)
        self._strategy = self._context.search_strategy
        self._strategy.pre_tuning(_MAX_TRIALS, batch_size, sketches, self._database, self._model)
        self._proposed: dict[str, Any] = {}

    def propose(self) -> list[Config]:
        """Return the configs of the next generation; empty if the search has ended."""
        candidates = self._strategy.generate_measure_candidates() or []
        if candidates:
            # The strategy needs results to continue, but only counts them.
            pending = [ms.runner.RunnerResult(None, "pending") for _ in candidates]
            self._strategy.notify_runner_results(candidates, pending)
        configs = []
        for candidate in candidates:
            config = self._config_of(candidate.sch.trace)
            self._proposed[config.key] = candidate
            configs.append(config)
        return configs

    def learn(self, results: Sequence[tuple[Config, float | None]]) -> None:
        """Add costs in seconds (None: failed), also of configs that this search did not propose."""
        candidates, answers = [], []
        for config, cost_sec in results:
            candidate = self._proposed.pop(config.key, None) or self._candidate(config)
            if candidate is None:
                continue
            seconds = [_FAILED_SEC if cost_sec is None else cost_sec]
            self._database.commit_tuning_record(
                ms.database.TuningRecord(
                    candidate.sch.trace, self._workload, seconds, self._context.target, self._args_info
                )
            )
            candidates.append(candidate)
            answers.append(
                ms.runner.RunnerResult(None, "failed")
                if cost_sec is None
                else ms.runner.RunnerResult(seconds, None)
            )
        if candidates:
            self._model.update(self._context, candidates, answers)

    def _candidate(self, config: Config) -> Any:
        try:
            if self._space.leaves_tails(config):
                return None  # stock mutators would not find its sketch
            schedule, _ = self._space.apply(config)
        except InvalidInputError:
            return None
        return ms.MeasureCandidate(schedule, self._args_info)

    def _config_of(self, trace: Trace) -> Config:
        sketch = self._sketch_of.get(instructions_of(trace))
        if sketch is None:
            raise InvariantError("the search proposed a trace that is of no sketch")
        return self._space.config_of(self._space.first_sketch + sketch, trace)


def _without_parallel_mutator(generator: Any) -> Any:
    mutators = {
        mutator: float(probability)
        for mutator, probability in generator.mutator_probs.items()
        if type(mutator).__name__ != "MutateParallel"
    }
    return ms.space_generator.PostOrderApply(
        sch_rules=list(generator.sch_rules), postprocs=list(generator.postprocs), mutator_probs=mutators
    )


def _open(params: dict[str, Any]) -> None:
    global _search
    _search = Search(
        params["ir"], Target.from_json(params["target"]), int(params["seed"]), int(params["batch_size"])
    )


def _opened() -> Search:
    if _search is None:
        raise InvariantError("no search has been opened in this child")
    return _search


def _propose(_params: dict[str, Any]) -> list[Any]:
    return [config.to_json() for config in _opened().propose()]


def _learn(params: dict[str, Any]) -> None:
    _opened().learn([(Config.from_json(config), cost_sec) for config, cost_sec in params["results"]])


HANDLERS: Handlers = {"open": _open, "propose": _propose, "learn": _learn}
