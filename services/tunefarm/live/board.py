"""`Board`: the state of a run by phase, which the views draw. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tunefarm_text import quantities

if TYPE_CHECKING:
    from tunefarm.client.results.jobs import Job
    from tunefarm.client.results.models import Model


class Phase(StrEnum):
    """Phases of a run, in order."""

    UPLOAD = "upload"
    IMPORT = "import"
    EXTRACT = "extract"
    TUNE = "tune"
    COMPILE = "compile"
    VERIFY = "verify"


class Status(StrEnum):
    """State of a phase."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


PHASES = tuple(Phase)
AWAY = "the server does not answer; trying again"

_STEPS: Mapping[Phase, tuple[str, ...]] = {
    Phase.COMPILE: ("load", "reference", "check-kernels", "build-model"),
    Phase.VERIFY: ("check-model", "measure", "other-shapes", "pack"),
}
"""The compiler's own phases: first the network is built, then it is compared with its reference and timed."""

_BY_JOB_STATE: Mapping[str, Phase] = {
    "queued": Phase.EXTRACT,
    "extracting": Phase.EXTRACT,
    "tuning": Phase.TUNE,
    "compiling": Phase.COMPILE,
}


@dataclass(slots=True)
class PhaseState:
    """A phase. `fraction` is the share that is done; None if unknown."""

    status: Status = Status.WAITING
    fraction: float | None = None
    text: str = ""


@dataclass(slots=True)
class Board:
    """All phases. The `on_*` methods process the client's reports."""

    phases: dict[Phase, PhaseState] = field(default_factory=lambda: {phase: PhaseState() for phase in PHASES})
    away: bool = False
    """Whether the last request had no answer."""

    def on_upload(self, sent: int, total: int) -> None:
        """Process the upload's progress: bytes sent, and the total."""
        self._enter(Phase.UPLOAD, sent / total if total else None, quantities.size(total))

    def on_away(self) -> None:
        """Note that the server did not answer."""
        self.away = True

    def text(self, phase: Phase) -> str:
        """Return the text of a phase."""
        state = self.phases[phase]
        return AWAY if self.away and state.status is Status.RUNNING else state.text

    def on_model(self, model: Model) -> None:
        """Process the state of the model."""
        self.away = False
        if model.state == "importing":
            self._enter(Phase.IMPORT, None, model.waiting or "")
        elif model.state == "ready":
            operators = sum(count for _, count in model.operators)
            text = f"{quantities.plural(operators, 'operator')}, {quantities.number(model.num_params or 0)} parameters"
            self._enter(Phase.IMPORT, None, text if operators else "")
            self._finish(Phase.IMPORT)
        else:
            self.phases[Phase.IMPORT].text = ""  # what it waited for did not stop it
            self.stop()

    def on_job(self, job: Job) -> None:
        """Process the state of the job."""
        self.away = False
        phase = _phase(job)
        if phase is None:
            if not job.is_finished:
                return  # a state of a newer server
            if job.state == "succeeded":
                self._tuning(job)
                for name in PHASES:
                    self._finish(name)
                for name in _STEPS:
                    self.phases[name].text = ""
            else:
                self.stop()
            return
        if phase is not Phase.EXTRACT:
            self._enter(Phase.EXTRACT, None, job.progress.to_tune_text)
            self._tuning(job)
        elif job.state == "queued":
            self._enter(Phase.EXTRACT, None, job.waiting or "queued")
        if phase is Phase.TUNE:
            self._tuning(job)
        elif job.state == "paused":
            self._enter(phase, self.phases[phase].fraction, "paused")
        else:
            step, done = job.progress.raw.get("step"), job.progress.raw.get("done")
            text = step.replace("-", " ") if isinstance(step, str) else self.phases[phase].text
            if isinstance(step, str) and job.eta_sec:
                text += f", {quantities.duration(job.eta_sec)} left"
            self._enter(phase, _step_fraction(phase, step, done), job.waiting or text)
            if phase is Phase.VERIFY:
                self.phases[
                    Phase.COMPILE
                ].text = ""  # it ended: its last step, and what was left then, are no news

    def stop(self) -> None:
        """Note that the run ended early; the running phase counts as stopped."""
        for state in self.phases.values():
            if state.status is Status.RUNNING:
                state.status = Status.STOPPED

    def _tuning(self, job: Job) -> None:
        if not job.searches:
            self._enter(Phase.TUNE, None, "no search")
            return
        parts = [quantities.plural(job.trials, "trial"), f"{job.failures} failed"]
        if job.progress.tasks_total:
            parts.append(job.progress.measured_text)
        if job.best_text != quantities.NONE:
            parts.append(f"best {job.best_text}")
        if job.eta_sec is not None and _phase(job) is Phase.TUNE:
            parts.append(f"{quantities.duration(job.eta_sec)} left")
        if job.progress.phase == "confirming":
            parts.append("confirming the best configs")
        if job.state == "paused" or job.waiting:
            parts.append(job.waiting or "paused")
        self._enter(Phase.TUNE, budget_used(job), ", ".join(parts))

    def _enter(self, phase: Phase, fraction: float | None, text: str) -> None:
        for earlier in PHASES[: PHASES.index(phase)]:
            if self.phases[earlier].status in (Status.WAITING, Status.RUNNING):
                self._finish(earlier)
        state = self.phases[phase]
        if state.status is not Status.DONE:
            state.status = Status.RUNNING
            state.fraction = None if fraction is None else min(max(fraction, 0.0), 1.0)
        state.text = text

    def _finish(self, phase: Phase) -> None:
        self.phases[phase].status = Status.DONE
        self.phases[phase].fraction = 1.0


def budget_used(job: Job) -> float | None:
    """Return the spent share of the budget, by the nearest limit; None without a limit of time or trials."""
    shares = []
    if limit := job.budget.get("trials"):
        shares.append(job.trials / limit)
    if limit := job.budget.get("wall_sec"):
        shares.append(job.tuned_sec / limit)
    return min(max(shares), 1.0) if shares else None


def _phase(job: Job) -> Phase | None:
    if job.state == "compiling" and job.progress.raw.get("step") in _STEPS[Phase.VERIFY]:
        return Phase.VERIFY
    state = job.progress.raw.get("paused_in") if job.state == "paused" else job.state
    return _BY_JOB_STATE.get(str(state))


def _step_fraction(phase: Phase, step: object, done: object) -> float | None:
    """Return the share of a phase that is done when its step `step` has progress `done`; None for an unknown step."""
    steps = _STEPS.get(phase, ())
    if step not in steps or not isinstance(done, int | float):
        return None
    return (steps.index(str(step)) + float(done)) / len(steps)
