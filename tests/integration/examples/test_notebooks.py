"""The example notebooks run unchanged in a real kernel."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from notebook_kernel import outputs, run_notebook
from replay_fixtures import client, farm
from repository import EXAMPLES

pytestmark = pytest.mark.exhaustive

__all__ = ["client", "farm"]

NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The examples, where they may write."""
    return shutil.copytree(EXAMPLES, tmp_path / "examples")


def run(folder: Path, name: str, environment: dict[str, str] | None = None) -> Any:
    return run_notebook(nbformat.read(folder / name, as_version=4), folder, environment)


def text(notebook: Any) -> str:
    return "".join(output.text for output in outputs(notebook, "stream"))


def html(notebook: Any) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in outputs(notebook))


def test_they_are_these() -> None:
    assert NOTEBOOKS == ["engine.ipynb", "records.ipynb", "tune_a_model.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_they_come_without_outputs(name: str) -> None:
    """Readers would take the figures of one machine for promises."""
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    for cell in code:
        assert cell.outputs == [], "clear all outputs in the editor, then save it"
        assert cell.execution_count is None
        assert cell.metadata == {}
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


def test_a_model_is_tuned(folder: Path) -> None:
    done = run(folder, "tune_a_model.ipynb")
    assert "the largest difference to ONNX Runtime is" in text(done)
    assert "verify" in html(done)
    assert "succeeded" in html(done)
    assert "<iframe sandbox" in html(done)
    assert (folder / "tuned" / "tiny.tunefarm").is_file()


def test_the_engine_alone(folder: Path) -> None:
    done = run(folder, "engine.ipynb")
    assert "of 6 tasks covered by history" in text(done)
    assert "24 trials" in text(done)
    (curve,) = [output for output in outputs(done, "execute_result") if "image/svg+xml" in output.data]
    assert "<polyline" in curve.data["image/svg+xml"]
    assert (folder / "tiny.tunefarm").is_file()


def test_records_are_asked_for(folder: Path, farm: Any, client: Any, tmp_path: Path) -> None:
    client.tune(farm.write_model(tmp_path / "net.onnx", tasks=3, failing=0.2), trials=24).wait(poll_sec=0.1)
    done = run(folder, "records.ipynb", {"TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key})
    assert "succeeded" in html(done)
    assert "record    1" in text(done)
    assert "'ok': " in str(outputs(done))
