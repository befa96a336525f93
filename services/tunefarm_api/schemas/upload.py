"""Schemas of uploads in parts."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Output
from tunefarm_api.schemas.problem import StoredError
from tunefarm_db.values import UploadState


class Upload(Output):
    """A file that is sent in as many requests as it takes."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "upl_01k8z3v6q4m9t2c7x5n8b1r0sd",
                    "name": "resnet18",
                    "shapes": {"x": [1, 3, 224, 224]},
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

    id: str = Field(description="Its identity.")
    name: str = Field(description="What the model is to be called.")
    shapes: dict[str, list[int]] = Field(description="Shapes that were given for inputs.")
    size_bytes: int = Field(description="What the file has in all.")
    sha256: str | None = Field(description="What the file must come to; null where the client did not say.")
    offset_bytes: int = Field(
        description="So many bytes are safely stored: send the rest from there. "
        "It is `size_bytes` for a finished upload alone."
    )
    state: UploadState = Field(
        description="`open`, `finished` (it became a model) or `failed` (see `error`)."
    )
    model_id: str | None = Field(description="The model that it became; null unless it is finished.")
    error: StoredError | None = Field(description="Why its bytes were refused; null unless it failed.")
    created_at: float = Field(description="When it was begun, Unix seconds.")
    expires_at: float = Field(description="When it is forgotten; every part that is sent puts that off.")
