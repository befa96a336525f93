"""What verification needs is imported when a key is given, and said when it is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from plain_artifacts import plain_artifact
from repository import EXAMPLES, ROOT

from tunefarm_tuning.artifact.loader import ArtifactError, load
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.provenance.verification import verified

NEEDED = ("securesystemslib", "cryptography")


@pytest.mark.parametrize("package", NEEDED)
def test_a_missing_package_is_named_with_its_extra(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    keys = tmp_path / "keys.pub"
    keys.write_text("")
    with (
        pytest.raises(InvalidInputError, match=r"pip install 'tunefarm\[verify\]'") as refused,
        verified(tmp_path / "net.tunefarm", keys),
    ):
        pass
    assert refused.value.code == "not-installed"
    with pytest.raises(ArtifactError) as same:
        load(tmp_path / "net.tunefarm", verify_key=keys)
    assert same.value.code == "not-installed"


def test_nothing_is_imported_without_a_key() -> None:
    program = f"""
import sys
import tunefarm.artifact, tunefarm_tuning.artifact.loader, tunefarm.cli.main
from tunefarm_tuning.provenance import verification
assert not set({NEEDED!r}) & set(sys.modules), sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_device_installs_no_package_for_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def needed(extra: str) -> set[str]:
        names: set[str] = set()
        for requirement in extras[extra]:
            if requirement.startswith("tunefarm["):
                for other in requirement.removeprefix("tunefarm[").rstrip("]").split(","):
                    names |= needed(other)
            else:
                names.add(requirement)
        return names

    for extra in ("device", "run", "engine"):
        assert not [name for name in needed(extra) if "securesystemslib" in name or "in-toto" in name]
    assert [name for name in needed("verify") if "securesystemslib" in name]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sys.path.insert(0, str(EXAMPLES))
    try:
        import tiny_convnet
    finally:
        sys.path.remove(str(EXAMPLES))
    model: Any = tiny_convnet.build_tiny_mlp(batch=1)
    return plain_artifact(model, tmp_path_factory.mktemp("artifact") / "net.tunefarm")


def test_an_artifact_does_not_vouch_for_itself(artifact: Path, tmp_path: Path) -> None:
    """Its own loader, which came with it, says so, however it is asked."""
    program = f"""
import sys
sys.path.insert(0, {str(artifact)!r})
from loader import ArtifactError, InferenceSession, load
for call in (lambda: load({str(artifact)!r}), lambda: InferenceSession({str(artifact)!r})):
    try:
        call()
    except ArtifactError as error:
        print(error.code)
"""
    variables = {**os.environ, "TUNEFARM_VERIFY_KEY": str(tmp_path / "keys.pub")}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=variables, timeout=120
    )
    assert ran.stdout.split() == ["cannot-verify-itself"] * 2, ran.stderr
    ran = subprocess.run(
        [sys.executable, str(artifact), "--time", "1"], capture_output=True, text=True, env=variables
    )
    assert (ran.returncode, "cannot verify itself" in ran.stderr) == (1, True)


def test_the_variable_counts_for_every_way_to_load(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tunefarm

    assert load(artifact).inputs
    keys = tmp_path / "keys.pub"
    keys.write_text("none")
    monkeypatch.setenv("TUNEFARM_VERIFY_KEY", str(keys))
    for call in (load, tunefarm.load, tunefarm.InferenceSession):
        with pytest.raises(ArtifactError) as refused:
            call(artifact)  # type: ignore[operator]
        assert refused.value.code == "bad-verify-key"
    for empty in ("", b""):  # of a variable that is not set, for example: not a way around the check
        with pytest.raises(ArtifactError, match="verify_key is empty") as refused:
            load(artifact, verify_key=empty)  # type: ignore[arg-type]
        assert refused.value.code == "bad-verify-key"
    monkeypatch.setenv("TUNEFARM_VERIFY_KEY", "")
    assert load(artifact).inputs
