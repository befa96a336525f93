"""The candidates of a round: asks the tuner, and builds the configs that it proposes."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from queue import SimpleQueue

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Builder, BuildInput, BuildResult, Builds
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.tuner.base import TrialResult, Tuner
from tunefarm_tuning.workload.task import TuningTask

Claim = Callable[[Sequence[str]], Collection[str]]
"""Called with the keys of proposed configs; returns those that this round may try. Others are tried elsewhere."""

NumberedBuild = tuple[int, BuildResult]
"""A candidate: its index among the configs that the tuner proposed, and its build."""

_REFUSED_PER_TRIAL = 8
"""Refused candidates per wanted trial that are replaced; after more, the round ends with fewer trials."""


class Candidates:
    """Asks for up to `n` candidates and builds them; to be iterated over once.

    While less than half of the wanted trials were built and fewer than 8 candidates per wanted trial were refused
    (`BuildResult.refused`), refused candidates do not count: the tuner learns of them and is asked for others. It is also
    asked again while all its proposals repeat earlier trials, up to its patience.

    Concurrency: iterated over in one thread; `stop` from any.

    Args:
        open_tuner: Returns the tuner; called once, before the first candidate.
        task: The task to tune.
        n: Trials that are wanted.
        builder: Who builds.
        is_cancelled: Asked between batches.
        claim: Says which proposals may be tried; all may, if left out.

    Attributes:
        tuner: The tuner; None until it was opened.
        configs: The configs that were proposed and claimed so far; a candidate's number is an index here.
        repeated: Numbers of candidates that, as applied, repeat an earlier trial or another candidate of the round.
        reported: Numbers of candidates whose results the tuner knows already.
        passed_over: Whether a proposal could not be claimed.
        begun: Set once the tuner has proposed, and building has begun.
        settled: Set once the round asks its tuner no more.
        asking_sec: Wall-clock of opening the tuner and of its first proposal.
    """

    def __init__(
        self,
        open_tuner: Callable[[], Tuner],
        task: TuningTask,
        n: int,
        builder: Builder,
        is_cancelled: Callable[[], bool],
        claim: Claim | None = None,
    ) -> None:
        self._open_tuner = open_tuner
        self._task = task
        self._n = n
        self._builder = builder
        self._is_cancelled = is_cancelled
        self._claim = claim
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._stream: Builds | None = None
        self.tuner: Tuner | None = None
        self.configs: list[Config] = []
        self.repeated: set[int] = set()
        self.reported: set[int] = set()
        self.passed_over = False
        self.begun = threading.Event()
        self.settled = threading.Event()
        self.asking_sec = 0.0

    def __iter__(self) -> Iterator[NumberedBuild]:
        if self._must_end():
            return
        began = time.monotonic()
        self.tuner = tuner = self._open_tuner()
        applied: set[str] = set()
        num_built = num_refused = num_fruitless = 0
        is_full = False
        while not (is_full or self._must_end()):
            first = len(self.configs)
            stream = self._build(self._propose(tuner, self._n - num_built))
            self.asking_sec = self.asking_sec or time.monotonic() - began
            self.begun.set()
            if stream is None:
                return
            batch: dict[int, BuildResult] = {}
            with closing(stream):
                for index, build in stream:
                    number = first + index
                    batch[number] = build
                    if build.config.key in applied or tuner.result_of(build.config) is not None:
                        self.repeated.add(number)
                    elif build.refused:
                        num_refused += 1
                    else:
                        num_built += 1
                    applied.add(build.config.key)
                    is_full = 2 * num_built >= self._n or num_refused >= _REFUSED_PER_TRIAL * self._n
                    if is_full:
                        self.settled.set()
                    yield number, build
                    if self._stopped.is_set():
                        return
            new = [build for number, build in batch.items() if number not in self.repeated]
            num_fruitless = 0 if new else num_fruitless + len(batch)
            is_full = (
                is_full
                or num_fruitless >= max(tuner.patience, self._n)
                # Otherwise the missing trials are repetitions, or the builder does not work.
                or (bool(new) and not _may_be_replaced(new))
            )
            if not is_full:
                self._tell_without_measuring(tuner, batch)

    def stop(self) -> None:
        """End the running builds, and ask for no more."""
        with self._lock:
            self._stopped.set()
            stream = self._stream
        if stream is not None:
            # A generator that runs in another thread cannot be closed: that thread checks `_stopped`.
            with suppress(ValueError):
                stream.close()

    def _must_end(self) -> bool:
        return self._stopped.is_set() or self._is_cancelled()

    def _propose(self, tuner: Tuner, n: int) -> list[Config]:
        """Ask for up to `n` configs that may be tried."""
        if self._claim is None:
            return tuner.ask(n)
        claimed: list[Config] = []
        # A tuner proposes no config twice, so the loop ends with its space at the latest.
        while len(claimed) < n and (proposed := tuner.ask(n - len(claimed))):
            keys = self._claim([config.key for config in proposed])
            ours = [config for config in proposed if config.key in keys]
            self.passed_over |= len(ours) < len(proposed)
            claimed += ours
        return claimed

    def _build(self, configs: Sequence[Config]) -> Builds | None:
        with self._lock:
            if self._stopped.is_set() or not configs:
                return None
            self.configs += configs
            inputs = [BuildInput(task=self._task, config=config) for config in configs]
            self._stream = self._builder.build_each(inputs)
            return self._stream

    def _tell_without_measuring(self, tuner: Tuner, batch: Mapping[int, BuildResult]) -> None:
        """Tell the tuner the refused and the repeated candidates, so that it proposes others next."""
        results = []
        for number, build in sorted(batch.items()):
            if build.refused and number not in self.repeated:
                result = TrialResult(
                    asked=self.configs[number], config=build.config, outcome=Outcome.INSTANTIATION_ERROR
                )
            elif (earlier := tuner.result_of(build.config)) is not None:
                result = repetition(self.configs[number], earlier)
            else:
                continue
            self.reported.add(number)
            results.append(result)
        tuner.tell(results)


class CandidateFeed:
    """Asks and builds in its own thread, which does not wait for the consumer.

    The tuner is asked once all events of `after` are set.

    Ownership: the consumer deletes the kernels that it took, `stop` the others.
    Concurrency: one consumer, in any thread.
    """

    def __init__(self, candidates: Candidates, after: Iterable[threading.Event] = ()) -> None:
        self._candidates = candidates
        self._after = after
        self._ready: SimpleQueue[NumberedBuild | BaseException | None] = SimpleQueue()
        # The thread's log lines belong to the same job.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._work,), name="prepare-round", daemon=True
        )
        self._thread.start()

    def _work(self) -> None:
        try:
            for event in self._after:
                event.wait()
            for candidate in self._candidates:
                self._ready.put(candidate)
        except BaseException as error:  # noqa: BLE001  (the consumer's thread raises it)
            self._ready.put(error)
        finally:
            self._candidates.begun.set()
            self._candidates.settled.set()
            self._ready.put(None)

    def __iter__(self) -> Iterator[NumberedBuild]:
        while (item := self._ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def stop(self) -> None:
        """End the running work, and delete the kernels that nobody took. Returns when the thread has ended."""
        self._candidates.stop()
        self._thread.join()
        while not self._ready.empty():
            item = self._ready.get()
            if isinstance(item, tuple):
                item[1].delete_artifact()


def repetition(asked: Config, earlier: TrialResult) -> TrialResult:
    """Return the result of a config that, as applied, equals one that was tried before."""
    return TrialResult(asked=asked, config=earlier.config, outcome=earlier.outcome, cost_sec=earlier.cost_sec)


def _may_be_replaced(builds: Sequence[BuildResult]) -> bool:
    """Return whether to ask for more candidates: some were refused, and the builder itself did not fail."""
    outcomes = {build.failure.outcome for build in builds if build.failure is not None}
    return Outcome.INSTANTIATION_ERROR in outcomes and Outcome.INFRASTRUCTURE_ERROR not in outcomes
