"""Schemas of uploads in parts."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Output
from tunefarm_api.schemas.problem import StoredError
from tunefarm_db.values import UploadState


class Upload(Output):
    """A file that is sent in one or more requests."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "upl_01k8z3v6q4m9t2c7x5n8b1r0sd",
                    "name": "resnet18",
                    "shapes": {"x": [1, 3, 224, 224]},
                    "values": {},
                    "size_bytes": 46800000,
                    "sha256": None,
                    "offset_bytes": 8388608,
                    "state": "open",
                    "model_id": None,
                    "error": None,
                    "created_at": 1800000000.0,
                    "expires_at": 1800086400.0,
                }
            ]
        }
    )

    id: str = Field(description="Identifier.")
    name: str = Field(description="Name of the model.")
    shapes: dict[str, list[int] | str] = Field(description="Shapes of inputs, as given.")
    values: dict[str, Any] = Field(description="Values of inputs that become constants, as given.")
    size_bytes: int = Field(description="Size of the whole file in bytes.")
    sha256: str | None = Field(description="Expected SHA-256 of the file; null if not given.")
    offset_bytes: int = Field(
        description="Number of bytes stored: continue from there. Equals `size_bytes` only if the upload is finished."
    )
    state: UploadState = Field(
        description="`open`, `finished` (it became a model) or `failed` (see `error`)."
    )
    model_id: str | None = Field(description="Model made from the upload; null unless finished.")
    error: StoredError | None = Field(description="Error, if the bytes were refused; null otherwise.")
    created_at: float = Field(description="Start of the upload, Unix seconds.")
    expires_at: float = Field(description="Expiry time, Unix seconds; each part sent postpones it.")
