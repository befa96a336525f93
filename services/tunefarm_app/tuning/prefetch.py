"""Prefetch: a track's next round is prepared in this process while the present one is measured.

A prefetched round is only in memory. The present step tells the other tracks of it (`InFlight.ahead`), so that none
tries its configs or spends its budget. The next step takes it, if this process runs that step. Otherwise it is discarded,
and the process that runs the step begins again: nothing depends on it.
"""

from __future__ import annotations

import contextvars
import threading

import structlog

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.tracks import Claims, InFlight
from tunefarm_app.tuning.plan import choose_next_round
from tunefarm_app.tuning.task_round import TaskRound
from tunefarm_db.values import DeviceLease, Job
from tunefarm_tuning.core.errors import reason_of
from tunefarm_tuning.measure.interfaces import MeasureOption

log = structlog.stdlib.get_logger(__name__)

_LOOK_SEC = 0.2


class PrefetchedRound:
    """Chooses the next round, asks its tuner and builds, in a thread of its own.

    Nothing is chosen before the present round, `after`, has all its candidates.
    """

    def __init__(
        self,
        context: StepContext,
        job: Job,
        device: DeviceLease,
        option: MeasureOption,
        claims: Claims,
        *,
        after: TaskRound,
    ) -> None:
        self._context = context
        self._job = job
        self._device = device
        self._option = option
        self._claims = claims
        self._after = after
        self._round: TaskRound | None = None
        self._stopped = threading.Event()
        # The thread's log lines belong to the same step.
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._prepare,), name="prefetch-round", daemon=True
        )
        self._thread.start()

    @property
    def round(self) -> TaskRound | None:
        """The round, once it is settled; None if there is nothing to measure."""
        return self._round if self._round is not None and self._round.lost is None else None

    @property
    def in_flight(self) -> InFlight | None:
        """The round as the other tracks know it."""
        return self._claims.present.ahead if self.round is not None else None

    def settle(self) -> None:
        """Wait until it makes no more claims, because it makes them for the present step."""
        self._thread.join()
        while self._round is not None and not self._round.wait_settled(_LOOK_SEC):
            if self._context.lease.reason is not None:
                return

    def discard(self) -> None:
        """End the running work and delete the kernels. Does nothing once the round was measured."""
        self._stopped.set()
        self._thread.join()
        if self._round is not None:
            self._round.discard()

    def _prepare(self) -> None:
        try:
            while not self._after.wait_settled(_LOOK_SEC):
                if self._stopped.is_set():
                    return
            if not self._stopped.is_set():
                self._round = self._choose()
        except Exception as error:  # noqa: BLE001  (the present round is not affected)
            log.info("no round is prefetched", reason=reason_of(error))

    def _choose(self) -> TaskRound | None:
        task = choose_next_round(self._context, self._device, self._claims)
        ahead = self._claims.present.ahead
        if task is None or ahead is None:
            return None
        chosen = TaskRound(self._context, self._job, task, self._device, self._claims.claim_ahead)
        chosen.prepare(self._option, ahead.trials)
        return chosen


def take_prefetched(context: StepContext) -> PrefetchedRound | None:
    """Return the round that the previous step prefetched in this process, if any; the caller measures or discards it."""
    prefetched = None if context.prefetch is None else context.prefetch.take()
    assert prefetched is None or isinstance(prefetched, PrefetchedRound)
    return prefetched
