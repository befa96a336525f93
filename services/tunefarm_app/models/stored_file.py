"""What the stored bytes of a model say of its file."""

from __future__ import annotations

from tunefarm_app.runtime.composition import Services
from tunefarm_convert import HEAD_BYTES, FileFormat, file_format
from tunefarm_db.values import Model
from tunefarm_tuning.core.errors import NotFoundError


def stored_file_end(services: Services, model: Model) -> str | None:
    """Return how the name of a model's file ends if its bytes tell: models are called by the name without it. None if they do not."""
    try:
        with services.blobs.open(model.sha256) as file:
            is_tflite = file_format(file.read(HEAD_BYTES)) is FileFormat.TFLITE
    except (OSError, NotFoundError):
        return None
    return ".tflite" if is_tflite else None
