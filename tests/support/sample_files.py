"""Files of samples for models of the replay engine."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from app_farm import Farm

from tunefarm_app.models.samples import find_samples, submit_samples
from tunefarm_db.values import Model, SampleFile


def npz(sets: int = 3, **arrays: Any) -> bytes:
    """Samples for a model of the replay engine: an input ``x`` of 1×8 float32."""
    buffer = io.BytesIO()
    np.savez(buffer, **(arrays or {"x": np.ones((sets, 1, 8), np.float32)}))
    return buffer.getvalue()


def send(farm: Farm, model: Model, content: bytes, name: str = "street.npz") -> SampleFile:
    blob = farm.services.blobs.put([content])
    return submit_samples(farm.services, model.id, name=name, blob=blob).samples


def checked(farm: Farm, model: Model, content: bytes) -> SampleFile:
    samples = send(farm, model, content)
    farm.run()
    return find_samples(farm.services, model.id, samples.id)


def blobs_in(farm: Farm) -> set[str]:
    return {path.name for path in farm.services.settings.store_dir.rglob("*") if path.is_file()}
