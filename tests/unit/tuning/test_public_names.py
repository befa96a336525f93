"""``import tunefarm_tuning``: every public name, at no cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tunefarm_tuning

HEAVY = ("tvm", "onnx", "onnxruntime", "numpy", "xgboost", "psutil")


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


@pytest.mark.parametrize("name", tunefarm_tuning.__all__)
def test_every_name_can_be_had(name: str) -> None:
    assert getattr(tunefarm_tuning, name) is not None


def test_the_names_for_type_checkers_are_the_same() -> None:
    tree = ast.parse(Path(tunefarm_tuning.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(tunefarm_tuning.__all__)


def test_importing_the_package_imports_nothing_heavy() -> None:
    loaded = run(f"import sys, tunefarm_tuning; print([m for m in {HEAVY} if m in sys.modules])")
    assert loaded == "[]"


def test_the_api_side_names_need_no_compiler() -> None:
    code = "from tunefarm_tuning import Budget, Target, TuningRecord, import_model, parse_target; parse_target('cuda/sm_90')"
    loaded = run(f"import sys\n{code}\nprint([m for m in {HEAVY} if m in sys.modules])")
    assert loaded == "[]"


def test_no_public_name_is_a_modules() -> None:
    # Importing a submodule sets it as an attribute of the package, in the place of a function of that name.
    folder = Path(tunefarm_tuning.__file__).parent
    modules = {path.name.removesuffix(".py") for path in folder.iterdir()}
    assert not modules & set(tunefarm_tuning.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tunefarm_tuning.no_such_name  # noqa: B018
