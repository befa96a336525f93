"""Targets: the machines that kernels are compiled for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

LIBRARIES = "libs"
"""TVM's name of the attribute that lists libraries."""

Attribute: TypeAlias = "str | int | float | bool | tuple[str, ...] | Target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A compilation target: TVM's target kind and its attributes.

    Attributes:
        kind: TVM's target kind (``"llvm"``, ``"cuda"``).
        attributes: Attributes by TVM's name, sorted by name (``(("mcpu", "znver5"), ("num-cores", 2))``). A GPU's
            ``host`` is a target itself.
    """

    kind: str
    attributes: tuple[tuple[str, Attribute], ...] = ()

    @property
    def key(self) -> str:
        """Canonical text that `parse_target` reads back: ``"llvm -mcpu=znver5 -num-cores=2"``."""
        return shlex.join([self.kind, *(f"-{name}={_text(value)}" for name, value in self.attributes)])

    @property
    def libraries(self) -> tuple[str, ...]:
        """Libraries that may compute kernels (``-libs=dnnl``)."""
        value = self.get(LIBRARIES)
        return value if isinstance(value, tuple) else ()

    def without_libraries(self) -> Target:
        """Return the target that kernels are tuned and recorded for: it does not depend on libraries."""
        kept = tuple((name, value) for name, value in self.attributes if name != LIBRARIES)
        return Target(kind=self.kind, attributes=kept)

    def get(self, name: str) -> Attribute | None:
        """Return an attribute's value; None if not set."""
        return dict(self.attributes).get(name)

    def to_json(self) -> dict[str, Any]:
        """Return the dict that TVM's ``Target`` takes."""
        return {"kind": self.kind, **{name: _json(value) for name, value in self.attributes}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Target:
        """Read TVM's dict, as `to_json` writes it."""
        attributes = tuple(sorted((name, _attribute(v)) for name, v in data.items() if name != "kind"))
        return cls(kind=str(data["kind"]), attributes=attributes)


def _text(value: Attribute) -> str:
    if isinstance(value, Target):
        return value.key
    if isinstance(value, tuple):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _json(value: Attribute) -> Any:
    if isinstance(value, Target):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


def _attribute(value: Any) -> Attribute:
    if isinstance(value, Mapping):
        return Target.from_json(value)
    attribute: Attribute = tuple(value) if isinstance(value, list) else value
    return attribute
