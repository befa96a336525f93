"""The queue agrees with a model of it, whatever workers, reapers and users do in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import StepKind, StepState
from tunefarm_tuning.core.errors import LeaseLostError

MAX_ATTEMPTS = 3
LEASE_SEC = 600.0
STEPS = 2

number = st.integers(0, STEPS - 1)
# Which fence a worker writes under: its own newest, or one from an earlier life.
age = st.sampled_from([0, 0, 0, 1, 2])


@dataclass
class Modelled:
    """The expected state of a step."""

    id: str
    state: StepState = StepState.READY
    fence: int = 0
    attempts: int = 0
    expired: bool = False
    has_error: bool = False

    def held_under(self, fence: int) -> bool:
        return self.state is StepState.LEASED and fence == self.fence


class QueueMachine(RuleBasedStateMachine):
    """Rules are the possible actions. Each checks its result, and the invariant compares everything."""

    def __init__(self, uow: UnitOfWork, expire: Any) -> None:
        super().__init__()
        self.uow = uow
        self.expire_lease = expire
        self.steps: list[Modelled] = []

    @initialize()
    def plan(self) -> None:
        with self.uow.write() as repos:
            page = repos.models.list()
            model = page.items[0] if page.items else repos.models.add(name="m", sha256="0" * 64, size_bytes=1)
            job = repos.jobs.add(
                model_id=model.id,
                target={},
                target_key="llvm",
                device_key="cpu",
                tuner="xgb",
                seed=0,
                budget={},
            )
            self.job_id = job.id
            for round_ in range(STEPS):
                step = repos.steps.add(
                    StepKind.TUNE, subject_id=job.id, model_id=model.id, job_id=job.id, round=round_
                )
                self.steps.append(Modelled(step.id))

    @rule(n=number)
    def claim(self, n: int) -> None:
        step = self.steps[n]
        takes = step.attempts < MAX_ATTEMPTS and (
            step.state is StepState.READY or (step.state is StepState.LEASED and step.expired)
        )
        with self.uow.write() as repos:
            claimed = repos.steps.claim(step.id, "w", LEASE_SEC, max_attempts=MAX_ATTEMPTS)
        assert (claimed is not None) is takes
        if takes:
            step.state, step.expired = StepState.LEASED, False
            step.fence += 1
            step.attempts += 1

    @rule(n=number, age=age)
    def renew(self, n: int, age: int) -> None:
        step = self.steps[n]
        fence = step.fence - age
        with self.uow.write() as repos:
            renewed = repos.steps.renew(step.id, fence, LEASE_SEC)
        assert renewed is step.held_under(fence)
        if renewed:
            step.expired = False

    @rule(n=number)
    def die(self, n: int) -> None:
        """The worker stops answering, and time passes."""
        step = self.steps[n]
        if step.state is StepState.LEASED:
            self.expire_lease("steps", step.id)
            step.expired = True

    @rule(n=number, age=age, state=st.sampled_from([StepState.DONE, StepState.FAILED]))
    def finish(self, n: int, age: int, state: StepState) -> None:
        step = self.steps[n]
        fence = step.fence - age
        error = {"code": "x"} if state is StepState.FAILED else None
        if step.held_under(fence):
            with self.uow.write() as repos:
                repos.events.add(self.job_id, "finished", {"fence": fence})
                repos.steps.finish(step.id, fence, state=state, error=error)
            step.state, step.has_error = state, error is not None
        else:
            self._is_late(lambda repos: repos.steps.finish(step.id, fence, state=state, error=error))

    @rule(n=number, age=age, counts=st.booleans())
    def release(self, n: int, age: int, counts: bool) -> None:
        step = self.steps[n]
        fence = step.fence - age
        error = {"code": "x"} if counts else None
        if step.held_under(fence):
            with self.uow.write() as repos:
                repos.steps.release(step.id, fence, count_attempt=counts, error=error)
            step.state, step.has_error = StepState.READY, counts
            step.attempts -= not counts
        else:
            self._is_late(
                lambda repos: repos.steps.release(step.id, fence, count_attempt=counts, error=error)
            )

    @rule(n=number, age=age)
    def hold(self, n: int, age: int) -> None:
        step = self.steps[n]
        fence = step.fence - age
        if step.held_under(fence):
            with self.uow.write() as repos:
                assert repos.steps.lock_claimed(step.id, fence).fence == fence
        else:
            self._is_late(lambda repos: repos.steps.lock_claimed(step.id, fence))

    @rule()
    def reap(self) -> None:
        with self.uow.write() as repos:
            everything = repos.steps.reap_expired(MAX_ATTEMPTS)
        reaped = {
            step.id: step.state for step in everything if step.job_id == self.job_id
        }  # runs share a database
        expected = {}
        for step in self.steps:
            spent = step.attempts >= MAX_ATTEMPTS
            expired = step.state is StepState.LEASED and step.expired
            if spent and (expired or step.state is StepState.READY):
                step.state, step.has_error = StepState.FAILED, True
            elif expired:
                step.state, step.expired = StepState.READY, False
            else:
                continue
            expected[step.id] = step.state
        assert reaped == expected

    @rule(really=st.sampled_from([False, False, False, True]))
    def cancel(self, really: bool) -> None:
        if not really:  # seldom: nothing happens after it
            return
        with self.uow.write() as repos:
            cancelled = {step.id for step in repos.steps.cancel_open(job_id=self.job_id)}
        open_steps = [
            s for s in self.steps if s.state in (StepState.READY, StepState.LEASED, StepState.PAUSED)
        ]
        assert cancelled == {step.id for step in open_steps}
        for step in open_steps:
            step.state = StepState.CANCELLED

    @rule()
    def pause(self) -> None:
        with self.uow.write() as repos:
            paused = {step.id for step in repos.steps.pause(self.job_id)}
        open_steps = [s for s in self.steps if s.state in (StepState.READY, StepState.LEASED)]
        assert paused == {step.id for step in open_steps}
        for step in open_steps:
            step.attempts -= step.state is StepState.LEASED
            step.state, step.expired = StepState.PAUSED, False

    @rule()
    def resume(self) -> None:
        with self.uow.write() as repos:
            resumed = {step.id for step in repos.steps.resume(self.job_id)}
        paused = [s for s in self.steps if s.state is StepState.PAUSED]
        assert resumed == {step.id for step in paused}
        for step in paused:
            step.state = StepState.READY

    def _is_late(self, write: Any) -> None:
        with pytest.raises(LeaseLostError), self.uow.write() as repos:  # noqa: PT012  (the write before is the point)
            repos.events.add(self.job_id, "late", {})
            write(repos)

    @invariant()
    def the_database_agrees(self) -> None:
        if not self.steps:
            return
        with self.uow.read() as repos:
            for step in self.steps:
                stored = repos.steps.get(step.id)
                assert (stored.state, stored.fence, stored.attempts) == (
                    step.state,
                    step.fence,
                    step.attempts,
                )
                assert (stored.error is not None) is step.has_error
                assert (stored.lease_until is not None) is (step.state is StepState.LEASED)
                assert (stored.finished_at is not None) is (
                    step.state in (StepState.DONE, StepState.FAILED, StepState.CANCELLED)
                )
            assert not [event for event in repos.events.after(self.job_id) if event.kind == "late"]


@pytest.mark.matrix(every=2, each_value=False)
def test_the_queue_agrees_with_its_model(uow: UnitOfWork, expire: Any) -> None:
    run_state_machine_as_test(
        lambda: QueueMachine(uow, expire),
        settings=settings(
            max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
