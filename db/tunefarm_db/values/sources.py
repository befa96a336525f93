"""What the repositories hand out of kernels' sources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class SourceState(StrEnum):
    """How far a kernel's source is."""

    MAKING = "making"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of one config of a workload, for one target, by one toolchain. It can be made again at any time.

    Attributes:
        key: Derived from all of these; see `tunefarm_app.records.kernel_sources`.
        record_id: A record of the config.
        target: As TVM's JSON.
        error: Why it cannot be made.
        sha256: The blob with its texts, when it is ready.
        updated_at: When its state last changed.
    """

    key: str
    record_id: str
    target: Json
    state: SourceState
    error: Json | None
    sha256: str | None
    size_bytes: int | None
    created_at: float
    updated_at: float
