"""The list of the corpus: what is in it, and that a bad entry is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.corpus.listing import ARCHITECTURES_FILE, PACKAGES_FILE, read_corpus, select

CORPUS = read_corpus()
FILES = [network for network in CORPUS if not network.is_architecture]
ENTRY = """
[[package]]
name = "some-package"
version = "1.0"
licence = "MIT"
source = "example.org"
"""
NETWORK = """
[[package.network]]
name = "net"
file = "net.onnx"
sha256 = "00"
kind = "classification"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "packages.toml"
    path.write_text(text)
    return path


def test_there_are_enough_networks_of_either_kind() -> None:
    assert len(FILES) >= 100
    assert len(CORPUS) - len(FILES) >= 30
    assert sum(network.suffix == ".tflite" for network in FILES) >= 20


def test_each_file_is_pinned_and_has_a_licence_and_a_source() -> None:
    for network in FILES:
        assert re.fullmatch(r"[0-9a-f]{64}", network.sha256), network.name
        assert network.package.version, network.name
        assert network.package.licence, network.name
        assert network.package.source, network.name
        assert network.suffix in (".onnx", ".tflite"), network.name


def test_no_file_is_listed_twice() -> None:
    hashes = [network.sha256 for network in FILES]
    assert len(hashes) == len(set(hashes))


def test_architectures_have_one_input_with_a_shape() -> None:
    for network in CORPUS:
        if network.is_architecture:
            (shape,) = network.shapes.values()
            assert len(shape) >= 2  # a text's, or a sound's, network.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY + NETWORK + NETWORK, "two networks of the corpus are called 'net'"),
        (ENTRY + NETWORK + 'colour = "red"', "colour"),
        (ENTRY.replace('licence = "MIT"', "") + NETWORK, "licence"),
    ],
    ids=["equal names", "unknown key", "missing key"],
)
def test_a_bad_list_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_corpus(write(tmp_path, text), ARCHITECTURES_FILE)


def test_an_architecture_of_another_library_is_refused(tmp_path: Path) -> None:
    other = ARCHITECTURES_FILE.read_text().replace('library = "timm"', 'library = "other"')
    path = tmp_path / "architectures.toml"
    path.write_text(other)
    with pytest.raises(ValueError, match="other"):
        read_corpus(PACKAGES_FILE, path)


def test_networks_are_chosen_by_their_name_or_package() -> None:
    assert [network.name for network in select(CORPUS, ["magika", "swift-f0"])] == ["magika", "swift-f0"]
    assert len(select(CORPUS, ["silero-vad"])) == 6
    assert select(CORPUS) == CORPUS
    assert all(network.quick for network in select(CORPUS, quick=True))
    with pytest.raises(ValueError, match="no-such"):
        select(CORPUS, ["no-such", "magika"])
