"""Targets: what we compile for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Attribute = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A compilation target: TVM's target kind and its attributes.

    Attributes:
        kind: TVM's target kind (``"llvm"``, ``"cuda"``).
        attributes: Attributes by TVM's name, sorted by name (``(("mcpu", "znver5"), ("num-cores", 2))``).
    """

    kind: str
    attributes: tuple[tuple[str, Attribute], ...] = ()

    @property
    def key(self) -> str:
        """Canonical text, also readable as a target: ``"llvm -mcpu=znver5 -num-cores=2"``."""
        parts = [self.kind]
        for name, value in self.attributes:
            text = ",".join(value) if isinstance(value, tuple) else json.dumps(value).strip('"')
            parts.append(f"-{name}={text}")
        return " ".join(parts)

    def get(self, name: str) -> Attribute | None:
        """Return an attribute's value, None where it is not set."""
        return dict(self.attributes).get(name)

    def to_json(self) -> dict[str, Any]:
        """Return the dict that TVM's ``Target`` takes."""
        return {
            "kind": self.kind,
            **{name: list(v) if isinstance(v, tuple) else v for name, v in self.attributes},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Target:
        attributes = tuple(
            sorted((n, tuple(v) if isinstance(v, list) else v) for n, v in data.items() if n != "kind")
        )
        return cls(kind=str(data["kind"]), attributes=attributes)
