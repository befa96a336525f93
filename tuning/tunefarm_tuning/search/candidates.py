"""The candidates of a round: the tuner is asked, and what it proposes is built."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Builder, BuildInput, BuildResult, Builds
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.tuner.base import TrialResult, Tuner
from tunefarm_tuning.workload.task import TuningTask

_REFUSED_PER_PLACE = 8
"""Refused candidates per place of a round that are replaced by others before the round ends with fewer trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One proposal, built.

    Attributes:
        number: Its place among what was asked.
        asked: What the tuner proposed.
        build: What became of it.
        space_key: Of the space that its configs belong to.
        fresh: As applied it is new to the tuner and in its round.
    """

    number: int
    asked: Config
    build: BuildResult
    space_key: str
    fresh: bool

    @property
    def refused(self) -> bool:
        return self.build.failure is not None and self.build.failure.outcome is Outcome.INSTANTIATION_ERROR

    def delete(self) -> None:
        """Delete its kernel."""
        if self.build.artifact_path is not None:
            self.build.artifact_path.unlink(missing_ok=True)


class Candidates:
    """Asks for up to `n` candidates and builds them; to be iterated over once.

    A candidate that is refused (`Outcome.INSTANTIATION_ERROR`: ten milliseconds, nothing built) takes no place while
    half of the places are free and fewer than 8 per place were refused: the tuner is told, and asked for others. So it
    is while all that it proposes repeats earlier trials, up to its patience.
    Concurrency: iterated over in one thread; `stop` from any.

    Args:
        open_tuner: Returns the tuner; called once, at the first candidate.
        task: What to tune.
        n: Places of the round.
        builder: Who builds.
        is_cancelled: Asked between batches.

    Attributes:
        tuner: Whom to tell; None until it was opened.
        asked: All that was proposed so far.
        told: Numbers of those of which the tuner was told already.
        begun: Set once the tuner has proposed, and building has begun.
        settled: Set once the tuner is not asked any more.
        asking_sec: How long opening the tuner and its first proposal took.
    """

    def __init__(
        self,
        open_tuner: Callable[[], Tuner],
        task: TuningTask,
        n: int,
        builder: Builder,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._open_tuner = open_tuner
        self._task = task
        self._n = n
        self._builder = builder
        self._is_cancelled = is_cancelled
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._stream: Builds | None = None
        self.tuner: Tuner | None = None
        self.asked: list[Config] = []
        self.told: set[int] = set()
        self.begun = threading.Event()
        self.settled = threading.Event()
        self.asking_sec = 0.0

    def __iter__(self) -> Iterator[Candidate]:
        if self._stopped.is_set() or self._is_cancelled():
            return
        began = time.monotonic()
        self.tuner = tuner = self._open_tuner()
        met: set[str] = set()
        taken = refused = fruitless = 0
        full = False
        while not (full or self._stopped.is_set() or self._is_cancelled()):
            first = len(self.asked)
            stream = self._build(tuner.ask(self._n - taken))
            self.asking_sec = self.asking_sec or time.monotonic() - began
            self.begun.set()
            if stream is None:
                return
            batch: list[Candidate] = []
            with closing(stream):
                for i, build in stream:
                    fresh = build.config.key not in met and tuner.result_of(build.config) is None
                    met.add(build.config.key)
                    one = Candidate(
                        number=first + i,
                        asked=self.asked[first + i],
                        build=build,
                        space_key=tuner.space.key,
                        fresh=fresh,
                    )
                    refused += one.fresh and one.refused
                    taken += one.fresh and not one.refused
                    full = 2 * taken >= self._n or refused >= _REFUSED_PER_PLACE * self._n
                    batch.append(one)
                    if full:
                        self.settled.set()
                    yield one
                    if self._stopped.is_set():
                        return
            found = [one for one in batch if one.fresh]
            fruitless = 0 if found else fruitless + len(batch)
            # Else what is missing was repetitions, or the builder is away.
            full = (
                full
                or fruitless >= max(tuner.patience, self._n)
                or (bool(found) and not _may_be_replaced(found))
            )
            if not full:
                self._tell_of_refused(tuner, batch)

    def stop(self) -> None:
        """End what is being built, and ask for no more."""
        with self._lock:
            self._stopped.set()
            stream = self._stream
        if stream is not None:
            # A generator that is at work in another thread: that one sees that it is to stop.
            with suppress(ValueError):
                stream.close()

    def _build(self, asked: Sequence[Config]) -> Builds | None:
        with self._lock:
            if self._stopped.is_set() or not asked:
                return None
            self.asked += asked
            self._stream = self._builder.build_each(
                [BuildInput(task=self._task, config=one) for one in asked]
            )
            return self._stream

    def _tell_of_refused(self, tuner: Tuner, batch: Sequence[Candidate]) -> None:
        """Tell of a batch what is known without measuring: the next proposals are to be better."""
        results = []
        for one in sorted(batch, key=lambda one: one.number):
            earlier = tuner.result_of(one.build.config)
            if one.refused and one.fresh:
                outcome, cost_sec = Outcome.INSTANTIATION_ERROR, None
            elif earlier is not None:
                outcome, cost_sec = earlier.outcome, earlier.cost_sec
            else:
                continue
            self.told.add(one.number)
            results.append(
                TrialResult(asked=one.asked, config=one.build.config, outcome=outcome, cost_sec=cost_sec)
            )
        tuner.tell(results)


def _may_be_replaced(found: Sequence[Candidate]) -> bool:
    """Return whether others shall be asked for: some were refused, and the builder is well."""
    outcomes = {one.build.failure.outcome for one in found if one.build.failure is not None}
    return Outcome.INSTANTIATION_ERROR in outcomes and Outcome.INFRASTRUCTURE_ERROR not in outcomes
