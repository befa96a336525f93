"""Schemas of samples."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import OWNER, Output
from tunefarm_api.schemas.problem import StoredError
from tunefarm_db.values import SampleState


class SampleFile(Output):
    """A file of samples: real inputs of a model."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "smp_01k8z3v6q4m9t2c7x5n8b1r0sd",
                    "model_id": "mdl_01k8z3v6q4m9t2c7x5n8b1r0sd",
                    "name": "street.npz",
                    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "size_bytes": 4800000,
                    "state": "ready",
                    "error": None,
                    "sets": 20,
                    "used": [0, 3, 5, 8, 11, 14, 16, 19],
                    "created_at": 1800000000.0,
                    "updated_at": 1800000001.2,
                    "expires_at": None,
                }
            ]
        }
    )

    id: str = Field(description="Identifier.")
    model_id: str = Field(description="Model that they are inputs of.")
    name: str = Field(description="Name given at the upload.")
    sha256: str = Field(description="SHA-256 of the file.")
    size_bytes: int = Field(description="Size of the file.")
    state: SampleState = Field(
        description="`checking`, `ready` or `failed` (see `error`). Only ready samples can be used."
    )
    error: StoredError | None = Field(description="Reason why the samples were refused; null otherwise.")
    sets: int | None = Field(description="Number of sample sets; null until ready.")
    used: list[int] = Field(description="Indices of the sample sets that a compile runs; empty until ready.")
    owner: str | None = Field(description=OWNER)
    created_at: float = Field(description="Time of the upload, Unix seconds.")
    updated_at: float = Field(description="Time of the last change, Unix seconds.")
    expires_at: float | None = Field(
        description="Time of deletion, Unix seconds; null once a job uses the samples."
    )
