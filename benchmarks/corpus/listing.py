"""The list of the corpus: packages and their networks from `packages.toml`, and architectures from `architectures.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

PACKAGES_FILE = Path(__file__).with_name("packages.toml")
ARCHITECTURES_FILE = Path(__file__).with_name("architectures.toml")
_Entry = TypeVar("_Entry", "Package", "Network")
ARCHITECTURE_LIBRARIES = ("torchvision", "timm", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package of the Python Package Index that ships networks."""

    name: str
    version: str
    licence: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network of the corpus.

    Attributes:
        name: Unique in the corpus.
        package: Of a file: the package that ships it. Of an architecture: its library, without a version.
        file: The file's path in the wheel; the architecture's name in its library.
        sha256: Of the file; empty for an architecture, whose weights are random.
        kind: What it does, for people.
        shapes: The shapes that the run binds, by input; of an architecture that of its only input.
        values: The values that the run binds scalar inputs to.
        quick: Whether `make test-all` compiles it.
    """

    name: str
    package: Package
    file: str
    sha256: str = ""
    kind: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, int | float | bool] = field(default_factory=dict)
    quick: bool = False

    @property
    def is_architecture(self) -> bool:
        """Whether it is exported from a library instead of read from a file."""
        return not self.sha256

    @property
    def suffix(self) -> str:
        """The ending of the network's file, ``.onnx`` or ``.tflite``."""
        return ".onnx" if self.is_architecture else Path(self.file).suffix


def read_corpus(
    packages: Path = PACKAGES_FILE, architectures: Path = ARCHITECTURES_FILE
) -> tuple[Network, ...]:
    """Return all networks, files first.

    Raises:
        ValueError: If two networks have the same name, or an entry lacks a key or has an unknown one.
    """
    listed: list[Network] = []
    for entry in tomllib.loads(packages.read_text(encoding="utf-8"))["package"]:
        networks = entry.pop("network")
        package = _build(Package, entry)
        listed += [_network(package, fields) for fields in networks]
    for entry in tomllib.loads(architectures.read_text(encoding="utf-8"))["architecture"]:
        library = Package(
            name=entry.pop("library"), version="", licence=entry.pop("licence"), source=entry.pop("source")
        )
        if library.name not in ARCHITECTURE_LIBRARIES:
            raise ValueError(f"the library {library.name!r} is not one of {ARCHITECTURE_LIBRARIES}")
        listed += [
            _network(library, {"shapes": {"x": entry["shape"]}, **fields}) for fields in entry["network"]
        ]
    _refuse_equal_names(listed)
    return tuple(listed)


def select(
    corpus: Sequence[Network], names: Iterable[str] = (), *, quick: bool = False
) -> tuple[Network, ...]:
    """Return the networks of these names or packages, or all; with `quick` only the quick ones.

    Raises:
        ValueError: If a name is neither a network nor a package.
    """
    wanted = set(names)
    unknown = wanted - {network.name for network in corpus} - {network.package.name for network in corpus}
    if unknown:
        raise ValueError(f"no network or package of the corpus is called {', '.join(sorted(unknown))}")
    return tuple(
        network
        for network in corpus
        if (not wanted or {network.name, network.package.name} & wanted) and (network.quick or not quick)
    )


def _network(package: Package, fields: Mapping[str, Any]) -> Network:
    shapes = {name: tuple(shape) for name, shape in fields.get("shapes", {}).items()}
    return _build(Network, {**fields, "package": package, "shapes": shapes})


def _build(kind: type[_Entry], fields: Mapping[str, Any]) -> _Entry:
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"the list of the corpus has a bad entry: {error}: {dict(fields)}") from error


def _refuse_equal_names(networks: Iterable[Network]) -> None:
    seen: set[str] = set()
    for network in networks:
        if network.name in seen:
            raise ValueError(f"two networks of the corpus are called {network.name!r}")
        seen.add(network.name)
