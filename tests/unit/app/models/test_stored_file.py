"""What a model's stored bytes say of its file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefarm_app.models.stored_file import stored_file_end


@pytest.mark.parametrize(
    ("data", "end"), [(b"\x1c\x00\x00\x00TFL3" + bytes(60), ".tflite"), (b"\x08\x07\x12\x03abc", None)]
)
def test_a_tflite_file_is_called_so(farm: Any, data: bytes, end: str | None) -> None:
    model = farm.ready_model()
    blob = farm.services.blobs.put([data])
    assert stored_file_end(farm.services, replace(model, sha256=blob.sha256)) == end


def test_of_a_file_that_is_gone_nothing_is_said(farm: Any) -> None:
    assert stored_file_end(farm.services, replace(farm.ready_model(), sha256="0" * 64)) is None
