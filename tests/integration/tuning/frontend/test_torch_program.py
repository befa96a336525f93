"""`torch.export` programs. Tests that need PyTorch are skipped where it is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tunefarm_tuning import ImportLimits, import_torch
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.frontend.torch import _compare

INSTALLED = all(importlib.util.find_spec(name) for name in ("torch", "onnxscript"))
needs_torch = pytest.mark.skipif(not INSTALLED, reason="torch and onnxscript are not installed")


@pytest.fixture
def program() -> Any:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(8)
            self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            self.last = torch.nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norm(self.conv(x)))
            z = y.flatten(2).transpose(1, 2)
            z, _ = self.attention(z, z, z)
            big = torch.nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear")
            return self.last(z.mean(1)), big

    torch.manual_seed(0)
    return torch.export.export(Net().eval(), (torch.randn(1, 3, 8, 8),))


def test_a_file_is_not_loaded_unless_it_is_trusted(tmp_path: Path) -> None:
    file = tmp_path / "net.pt2"
    file.write_bytes(b"PK\x03\x04")
    with pytest.raises(InvalidModelError) as caught:
        import_torch(file, tmp_path / "net.onnx")
    assert caught.value.code == "untrusted-program"
    assert not (tmp_path / "net.onnx").exists()


@pytest.mark.skipif(INSTALLED, reason="torch and onnxscript are installed")
def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="pip install torch onnxscript") as caught:
        import_torch(tmp_path / "net.pt2", tmp_path / "net.onnx", trust=True)
    assert caught.value.code == "not-installed"


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_program_becomes_a_model(program: Any, tmp_path: Path) -> None:
    import torch

    model = import_torch(program, tmp_path / "net.onnx")
    assert [spec.shape for spec in model.inputs] == [(1, 3, 8, 8)]
    assert [spec.shape for spec in model.outputs] == [(1, 5), (1, 8, 16, 16)]
    assert model.path == tmp_path / "net.onnx"
    torch.export.save(program, tmp_path / "net.pt2")
    again = import_torch(tmp_path / "net.pt2", tmp_path / "again.onnx", trust=True)
    assert (again.inputs, again.outputs) == (model.inputs, model.outputs)


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_file_that_computes_something_else_is_refused(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    model = import_torch(program, path)
    program.state_dict["last.weight"].data.add_(1.0)  # after its conversion
    with pytest.raises(InvalidModelError) as caught:
        _compare(program, model, ImportLimits())
    assert caught.value.code == "conversion-differs"


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_conversion_that_is_refused_replaces_nothing(tmp_path: Path) -> None:
    """Its inputs are no longer those that it can be compared on."""
    import torch

    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        torch.nn.Linear(4, 3).eval(), (torch.randn(2, 4),), dynamic_shapes={"input": {0: batch}}
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(b"from before")
    with pytest.raises(InvalidModelError) as caught:
        import_torch(program, path, shapes={"input": (5, 4)})
    assert caught.value.code == "conversion-differs"
    assert path.read_bytes() == b"from before"
    assert list(tmp_path.iterdir()) == [path]


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "net.pt2"
    file.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(InvalidModelError) as caught:
        import_torch(file, tmp_path / "net.onnx", trust=True)
    assert caught.value.code == "bad-program"
