"""How a trial ends."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a trial ended. Every trial ends in exactly one.

    Source: the set began as AutoTVM's ``MeasureErrorNo`` (TVM v0.19); crashes have classes of their own
    here, and the device's failures are kept apart from the candidate's.
    """

    OK = "ok"
    INSTANTIATION_ERROR = "instantiation-error"  # the config does not apply to the workload
    BUILD_ERROR = "build-error"
    BUILD_TIMEOUT = "build-timeout"
    BUILD_CRASH = "build-crash"  # the compiler died (segfault, out of memory)
    RUN_ERROR = "run-error"
    RUN_TIMEOUT = "run-timeout"
    RUN_CRASH = "run-crash"  # the kernel took its device session down
    WRONG_ANSWER = "wrong-answer"
    INFRASTRUCTURE_ERROR = "infrastructure-error"  # device gone, lease lost: not the candidate's fault

    @property
    def counts_against_candidate(self) -> bool:
        """Whether the candidate itself is to blame; the rest is tried again."""
        return self not in (Outcome.OK, Outcome.INFRASTRUCTURE_ERROR)
