"""A tuner whose proposals are claimed as they are made: what another lane of the job is at is passed over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

from tunefarm_tuning.config import Config
from tunefarm_tuning.transfer import TaskHistory
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
