"""What the repositories hand out of uploads that come in parts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class UploadState(StrEnum):
    """Where an upload stands; the last two are final."""

    OPEN = "open"
    FINISHED = "finished"  # it became a model
    FAILED = "failed"  # its bytes were refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that is sent in as many requests as it takes.

    Attributes:
        api_key_id: Whose it is: nobody else is told of it.
        name: What the model is to be called.
        shapes: Shapes of dynamic inputs, by input.
        metadata: What the client said of it at the beginning, as it said it (tus: ``Upload-Metadata``).
        size_bytes: What it has in all.
        sha256: What its bytes must come to; None where the client did not say.
        offset_bytes: So many of them are safely on the disk. It is `size_bytes` for a finished upload alone.
        digest: What its bytes came to, noted before they become a blob; None before.
        model_id: What it became; None unless it is finished.
        error: Why its bytes were refused; None unless it failed.
        expires_at: It is forgotten then, its bytes with it; every part puts that off.
    """

    id: str
    api_key_id: str
    name: str
    shapes: dict[str, Any]
    metadata: str
    size_bytes: int
    sha256: str | None
    offset_bytes: int
    state: UploadState
    digest: str | None
    model_id: str | None
    error: dict[str, Any] | None
    created_at: float
    expires_at: float
