"""The packages that an agent and a supervisor import."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVER_SIDE = {"fastapi", "starlette", "celery", "kombu", "sqlalchemy", "alembic", "pydantic", "redis"}
ENGINE_SIDE = {"onnx", "onnxruntime", "xgboost"}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("tunefarm_workers.device.__main__", {*SERVER_SIDE, *ENGINE_SIDE, "tvm", "numpy"}),
        ("tunefarm_workers.device.hardened_server.__main__", {*SERVER_SIDE, *ENGINE_SIDE, "httpx"}),
        ("tunefarm.embedded.__main__", {*SERVER_SIDE, *ENGINE_SIDE, "tvm", "numpy", "httpx"}),
    ],
)
def test_small_processes_stay_small(module: str, unwanted: set[str]) -> None:
    code = f"import {module}, sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & unwanted
