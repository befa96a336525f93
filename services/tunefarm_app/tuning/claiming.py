"""Configs are claimed as they are proposed: what another track of the job is at is passed over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.tracks import InFlight, others_in_flight
from tunefarm_db.unit_of_work import Repositories
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.tuner import TrialResult, Tuner

Claim = Callable[[Sequence[str]], Collection[str]]
"""Called with keys of configs; returns which of them are ours to try."""


class ClaimingTuner(Tuner):
    """Proposes what `tuner` proposes and `claim` grants; in all else it is `tuner`.

    Attributes:
        passed_over: Whether something was proposed that was not granted.
    """

    name: ClassVar[str] = "claiming"

    def __init__(self, tuner: Tuner, claim: Claim) -> None:
        super().__init__(tuner.space, seed=tuner.seed)
        self._tuner = tuner
        self._claim = claim
        self.passed_over = False

    @property  # a class has one; here it is that of whatever tuner this is
    def patience(self) -> int:  # type: ignore[override]
        return self._tuner.patience

    def ask(self, n: int) -> list[Config]:
        granted: list[Config] = []
        # A tuner proposes nothing twice: this ends with its space, at the latest.
        while len(granted) < n and (asked := self._tuner.ask(n - len(granted))):
            claimed = self._claim([config.key for config in asked])
            ours = [config for config in asked if config.key in claimed]
            self.passed_over |= len(ours) < len(asked)
            granted += ours
        return granted

    def tell(self, results: Sequence[TrialResult]) -> None:
        self._tuner.tell(results)

    def result_of(self, config: Config) -> TrialResult | None:
        return self._tuner.result_of(config)

    def load_history(self, histories: Sequence[TaskHistory]) -> None:
        self._tuner.load_history(histories)

    def set_aside(self, configs: Sequence[Config]) -> None:
        self._tuner.set_aside(configs)

    def close(self) -> None:
        self._tuner.close()


class Claims:
    """What a track is at, and tells the others: its round, and the next one that it prepares.

    Concurrency: any thread.
    """

    def __init__(self, context: StepContext, round: InFlight) -> None:  # noqa: A002
        self._context = context
        self._lock = threading.Lock()
        self.round = round

    def claim(self, asked: Sequence[str]) -> Collection[str]:
        """Add configs to the round, but for those that another track has or had; return those of the round."""
        with self._telling() as repos:
            self.round = self._with(repos, self.round, asked)
        return self.round.asked

    def claim_ahead(self, asked: Sequence[str]) -> Collection[str]:
        """Likewise for the round that is prepared."""
        with self._telling() as repos:
            if self.round.ahead is None:
                return ()
            ahead = self._with(repos, self.round.ahead, asked)
            self.round = replace(self.round, ahead=ahead)
        return ahead.asked

    def prepare(self, repos: Repositories, ahead: InFlight) -> None:
        """Tell of the round that is prepared, in a transaction with the job's row locked."""
        with self._lock:
            self.round = replace(self.round, ahead=ahead)
            self._note(repos)

    @contextmanager
    def _telling(self) -> Iterator[Repositories]:
        with self._context.note() as repos:
            self._context.job(repos)
            with self._lock:
                yield repos
                self._note(repos)

    def _with(self, repos: Repositories, one: InFlight, asked: Sequence[str]) -> InFlight:
        taken = {
            key
            for other in others_in_flight(repos, self._context.step)
            if other.position == one.position
            for key in other.asked
        }
        # What another track has committed since the tuner was told of trials.
        taken |= repos.trials.met(self._context.job_id, one.position, asked)
        return replace(one, asked=(*one.asked, *(key for key in asked if key not in taken)))

    def _note(self, repos: Repositories) -> None:
        step = self._context.step
        repos.steps.note_in_flight(step.id, step.fence, self.round.to_json())
