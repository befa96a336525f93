"""`Runtime`: a network that is open in another runtime, ready to run on fixed inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFile:
    """A network and what it is run on.

    Attributes:
        path: The file: ONNX with fixed shapes, or a TFLite file as it was uploaded.
        inputs: By name.
        constants: Values of further inputs, by name: numbers in nested lists. An ONNX file has them as constants.
        threads: The number of threads to run on.
    """

    path: Path
    inputs: Mapping[str, NDArray[Any]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    threads: int


class Runtime(Protocol):
    """A network that is open.

    Attributes:
        version: The runtime's version.
        computes: The arithmetic of its products, for people.
    """

    version: str
    computes: str

    def run(self) -> object:
        """Run one inference on the inputs that the network was opened with."""

    def outputs(self) -> list[NDArray[Any]]:
        """Run one inference and return its outputs, in the file's order."""


OpenRuntime = Callable[[NetworkFile], Runtime]
"""Opens a network; raises anything if the runtime cannot run it."""


def in_files_order(names: Sequence[str], network: NetworkFile) -> list[Any]:
    """Return the values of a file's inputs, whose names are given in order: by their names, or else by their order.

    Raises:
        InvalidInputError: If the file has another number of inputs.
    """
    values = {**network.inputs, **network.constants}
    if set(names) == values.keys():
        return [values[name] for name in names]
    if len(names) != len(values) or network.constants:
        raise InvalidInputError(f"it finds {len(names)} inputs in the file, but the model has {len(values)}")
    return list(values.values())
