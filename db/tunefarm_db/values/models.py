"""Values of models: uploads, blobs of the store, and the tasks of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tunefarm_db.values.base import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A file of the content-addressed store."""

    sha256: str
    size_bytes: int
    media_type: str
    created_at: float


class ModelState(StrEnum):
    """State of a model's import."""

    IMPORTING = "importing"
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"


BINDING_CODES = frozenset(
    {"unknown-dimension", "unknown-input", "bad-shape", "bad-value", "zero-size", "too-many-shapes"}
)
"""Errors of imports that other shapes or values mend: the file is kept for them until the model is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An uploaded network.

    Attributes:
        shapes: Shapes given for dynamic inputs (``{"x": [1, 3, 224, 224]}``, or texts of `tunefarm_text.shape_text`); part of the
            identity.
        values: Values given for inputs that became constants (``{"sr": 16000}``); part of the identity.
        error: `TunefarmError.to_json` where the state is failed.
        inputs: `TensorSpec.to_json` objects; empty until the model is ready. `outputs` likewise.
        operators: ``[name, count]`` pairs.
        parts: `RuntimePart.to_json` objects: what ONNX Runtime runs of it; None for a model of an earlier release.
        revision: `tunefarm_tuning.workload.revisions.IMPORTER` of the release that refused it.
        specialisations: `Specialisation.to_json` of the engine for each set of shapes; empty if there is only one.
        tags: A person's words for it, in order. `note`: a person's text.
        version: Which of the models of this name it is, from 1; a later upload under the name is the next one.
    """

    id: str
    name: str
    sha256: str
    size_bytes: int
    shapes: dict[str, list[int] | str]
    values: dict[str, Any]
    state: ModelState
    error: Json | None
    inputs: list[Json]
    outputs: list[Json]
    operators: list[list[Any]]
    opset: int | None
    num_params: int | None
    created_at: float
    updated_at: float
    parts: list[Json] | None = None
    revision: int = 0
    specialisations: list[Json] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    note: str = ""
    version: int = 1
    owner: str | None = None

    @property
    def needs_binding(self) -> bool:
        """Whether its import failed for want of right shapes or values of its inputs."""
        return self.state is ModelState.FAILED and (self.error or {}).get("code") in BINDING_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTask:
    """A kernel of a model on one kind of target, with the fields of its workload that lists show.

    Attributes:
        pipeline: The graph passes that found it: ``"cpu"``, ``"cpu dot16"``, ``"gpu"`` and so on.
        weight: Calls per inference.
        alternative: `Alternative.to_json` of the engine; None for a kernel of the network as it stands.
    """

    model_id: str
    pipeline: str
    position: int
    workload_key: str
    toolchain: str
    weight: int
    name: str
    flops: float
    args: list[Json]
    alternative: Json | None = None


class SampleState(StrEnum):
    """State of a file of samples."""

    CHECKING = "checking"
    READY = "ready"
    FAILED = "failed"  # it does not fit the model


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFile:
    """A user's samples for a model: real inputs, to compare and time the compiled network on.

    Attributes:
        sha256: SHA-256 of its blob. The blob of a failed file is gone.
        error: `TunefarmError.to_json` where the state is failed.
        sets: Number of sample sets; None until it is ready.
        used: Indices of the sets that a compile runs; empty until it is ready.
        expires_at: Time at which it is deleted; None once a job uses it.
    """

    id: str
    model_id: str
    name: str
    sha256: str
    size_bytes: int
    state: SampleState
    error: Json | None
    sets: int | None
    used: list[int]
    created_at: float
    updated_at: float
    expires_at: float | None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedModel:
    """A quantised form of a model.

    Attributes:
        terms: Digest of the samples and the accuracy asked for.
        sha256: SHA-256 of its blob, an ONNX file.
        quantisation: `tunefarm_tuning.workload.quantisation.Quantisation` as JSON.
    """

    model_id: str
    terms: str
    sha256: str
    quantisation: Json
    created_at: float


class UploadState(StrEnum):
    """State of an upload; the last two are final."""

    OPEN = "open"
    FINISHED = "finished"  # it became a model
    FAILED = "failed"  # its bytes were refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that is sent in several requests.

    Attributes:
        api_key_id: The key that began it; other keys cannot see it.
        name: Name for the model.
        shapes: Shapes of dynamic inputs, by input.
        values: Values of inputs that become constants, by input.
        metadata: The client's metadata at the beginning, as sent (tus: ``Upload-Metadata``).
        size_bytes: Size of the complete file.
        sha256: The expected SHA-256; None if the client gave none.
        offset_bytes: So many of them are safely on the disk. It is `size_bytes` for a finished upload alone.
        digest: SHA-256 of its complete bytes, stored before they become a blob; None before.
        model_id: The model made of it; None unless it is finished.
        error: Why its bytes were refused; None unless it failed.
        expires_at: Time at which the upload and its bytes are deleted; every part postpones it.
    """

    id: str
    api_key_id: str
    name: str
    shapes: dict[str, Any]
    values: dict[str, Any]
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
