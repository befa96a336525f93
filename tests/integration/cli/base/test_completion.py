"""Completion in a real bash, of commands and of names on the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BASH = shutil.which("bash")
PROGRAMS = str(Path(sys.executable).parent)

pytestmark = pytest.mark.skipif(
    BASH is None or not (Path(PROGRAMS) / "tunefarm").exists(),
    reason="needs bash, and the installed command",
)


def bash(script: str, **env: str) -> str:
    done = subprocess.run(
        [str(BASH), "--norc", "-c", script],
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", **env},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The completion as a user installs it."""
    home = tmp_path_factory.mktemp("home")
    bash("tunefarm --install-completion; true", HOME=str(home))
    assert "tunefarm.sh" in (home / ".bashrc").read_text()
    return home / ".bash_completions" / "tunefarm.sh"


def test_the_script_can_be_had_alone(script: Path) -> None:
    assert bash("tunefarm --show-completion; true").strip() == script.read_text().strip()


def completed(script: Path, line: str, **env: str) -> list[str]:
    """Return the completions of Tab at the end of a line."""
    words = [*line.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f"source '{script}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
        'complete -p tunefarm >/dev/null && _tunefarm_completion tunefarm && printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return bash(program, **env).split()


def test_commands_and_options(script: Path) -> None:
    assert completed(script, "tunefarm jobs wat") == ["watch"]
    assert completed(script, "tunefarm to") == ["top"]
    assert completed(script, "tunefarm top --ev") == ["--every"]


def test_a_name_on_the_server(script: Path, farm: Any) -> None:
    farm.add_device("lab-1")
    env = {"TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key}
    assert completed(script, "tunefarm device drain lab", **env) == ["lab-1"]
    line = f"tunefarm device drain --url {farm.url} --api-key {farm.api_key} dev"
    assert completed(script, line) == ["dev-1"]


@pytest.mark.exhaustive
def test_each_kind_of_name_on_the_server(script: Path, farm: Any, client: Any, tmp_path: Path) -> None:
    farm.add_device("lab-1")
    farm.add_device("lab-2", device_key="other")
    job = client.tune(farm.write_model(tmp_path / "net.onnx", tasks=1), trials=4, device_key="pool")
    job.wait()
    env = {"TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key}
    assert completed(script, "tunefarm jobs watch ", **env) == [job.id]
    assert completed(script, "tunefarm jobs pause job_", **env) == [job.id]
    assert completed(script, "tunefarm jobs show mdl", **env) == []
    assert completed(script, "tunefarm records export --job ", **env) == [job.id]
    assert completed(script, "tunefarm models show ", **env) == [job.job.model_id]
    assert sorted(completed(script, "tunefarm device drain ", **env)) == ["dev-1", "lab-1", "lab-2"]
    assert completed(script, "tunefarm device drain lab", **env) == ["lab-1", "lab-2"]
    assert completed(script, "tunefarm tune net.onnx --device-key o", **env) == ["other"]


@pytest.mark.exhaustive
def test_no_server_is_no_offer(script: Path, farm: Any, tmp_path: Path) -> None:
    nobody = {"TUNEFARM_URL": "http://127.0.0.1:1", "TUNEFARM_API_KEY": "k"}
    assert completed(script, "tunefarm jobs show ", **nobody) == []
    stranger = {"TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": "tfk_wrong"}
    assert completed(script, "tunefarm device drain ", **stranger) == []
    assert completed(script, "tunefarm jobs show ", TUNEFARM_HOME=str(tmp_path)) == []
