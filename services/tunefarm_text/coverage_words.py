"""Why kernels run untuned, in words that fit one kernel and several: for report, pages and command."""

from __future__ import annotations

from collections.abc import Mapping

NOT_TRIED = "not-tried"

REASONS: Mapping[str, str] = {
    NOT_TRIED: "not tried by a search yet",
    "no-record": "no config worked",
    "other-target": "the records are for another target",
    "other-device-model": "the records are for another device model",
    "other-toolchain": "the records are from another compiler version",
    "space-changed": "the record is of an earlier version of the search space",
    "does-not-apply": "the record's schedule does not apply, or does not build",
    "crashed": "the tuned form crashed or exceeded its time limit",
    "unchecked": "the untuned form could not be run for comparison",
    "wrong-answer": "the tuned form computes a different result",
    "slower-than-untuned": "the tuned form is slower than the untuned one",
}
"""Why a task runs its untuned kernel (`tunefarm_tuning.records.coverage.MissReason`)."""
