"""The tuner interface: ask for configs, tell their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """The result of one trial, as a tuner learns it.

    Attributes:
        asked: The config that `Tuner.ask` proposed.
        config: The config as applied (see `BuildResult.config`); equals `asked` if applying failed.
        cost_sec: Median seconds per call; None unless `outcome` is ok.
    """

    asked: Config
    config: Config
    outcome: Outcome
    cost_sec: float | None = None


class Tuner(ABC):
    """A search strategy over one config space: a state machine without I/O.

    Ordering: `ask` may be called again before `tell`; no config is proposed twice, as asked or as applied.
    Determinism: equal constructor arguments, seed and results give equal proposals. The state follows from the results:
        a new tuner that is told all results of an old one continues from there.
    Failure: `ask` returns fewer than `n` configs, finally none, when the space is exhausted; it does not raise then.
    Concurrency: one caller at a time; but `result_of` may be called while another thread is in `ask`.
    """

    name: ClassVar[str]

    patience: ClassVar[int] = 32
    """The space counts as exhausted after so many proposals in a row whose applied config was tried before."""

    learns_from_others: ClassVar[bool] = False
    """Whether `load_history` has an effect; if not, callers need not read histories."""

    def __init__(self, space: ConfigSpace, *, seed: int = 0) -> None:
        self.space = space
        self.seed = seed

    @abstractmethod
    def ask(self, n: int) -> list[Config]:
        """Propose up to `n` new configs."""

    @abstractmethod
    def tell(self, results: Sequence[TrialResult]) -> None:
        """Add results of configs, including configs that this tuner never proposed.

        An infrastructure error says nothing about its config, which may then be proposed again.
        """

    @abstractmethod
    def result_of(self, config: Config) -> TrialResult | None:
        """Return the first result of a config as applied; None if there is none."""

    def load_history(self, histories: Sequence[TaskHistory]) -> None:  # noqa: B027  (optional by design)
        """Learn from records of this workload on another target or device, and of similar workloads.

        Their configs count as not tried. They replace earlier histories. Tuners without a model ignore them.
        """

    def set_aside(self, configs: Sequence[Config]) -> None:  # noqa: B027  (optional by design)
        """Exclude these configs from proposals. Nothing is learned from them: they neither failed nor succeeded."""

    def close(self) -> None:  # noqa: B027  (optional by design)
        """Release resources outside this process, such as a child process."""


def result_of_record(record: TuningRecord) -> TrialResult:
    """Return a record as the result of a trial. A record does not store the config that was asked for."""
    return TrialResult(
        asked=record.config, config=record.config, outcome=record.outcome, cost_sec=record.cost_sec
    )
