"""The outcome classes: how a trial ends."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a trial ended. Every trial has exactly one outcome."""

    # To add a class: add it here, in the order of a trial's steps; return it as a `Failure` from the builder or runner that meets
    # it; add its sentence to `tunefarm_app.report.words.OUTCOMES` and a row to docs/how-to.md. Values are stored in records
    # and databases: never rename one.
    #
    # Source: the set began as AutoTVM's ``MeasureErrorNo`` (TVM v0.19); crashes have classes of their own here, and the device's
    # failures are kept apart from the candidate's.

    OK = "ok"
    INSTANTIATION_ERROR = "instantiation-error"  # the config does not apply to the workload
    BUILD_ERROR = "build-error"  # the compiler refused the kernel
    BUILD_TIMEOUT = "build-timeout"
    BUILD_CRASH = "build-crash"  # the compiler died (segfault, out of memory)
    RESOURCE_ERROR = "resource-error"  # a GPU cannot launch the kernel, or its threads spill registers
    RUN_ERROR = "run-error"  # the kernel failed, and its session continues
    RUN_TIMEOUT = "run-timeout"
    RUN_CRASH = "run-crash"  # the kernel ended its device session
    WRONG_ANSWER = "wrong-answer"  # of runners that compare results; ours leave it to the compile (`MissReason.WRONG_ANSWER`)
    INFRASTRUCTURE_ERROR = (
        "infrastructure-error"  # the device or its lease was lost: not the candidate's fault
    )

    @property
    def is_build_failure(self) -> bool:
        """Whether there is no kernel to measure: the candidate failed before it ran."""
        return self in (
            Outcome.INSTANTIATION_ERROR,
            Outcome.BUILD_ERROR,
            Outcome.BUILD_TIMEOUT,
            Outcome.BUILD_CRASH,
            Outcome.RESOURCE_ERROR,
        )

    @property
    def counts_against_candidate(self) -> bool:
        """Deprecated: whether it is neither `OK` nor `INFRASTRUCTURE_ERROR`."""
        return self not in (Outcome.OK, Outcome.INFRASTRUCTURE_ERROR)
