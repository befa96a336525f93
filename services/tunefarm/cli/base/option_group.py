"""Options that a command takes as one parameter: a frozen dataclass with a field per option."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self, get_type_hints


class OptionGroup:
    """Base of frozen dataclasses whose fields are annotated as typer's options, each with a default."""

    __slots__ = ()

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the options as typer's parameters. Their names end with ``_``: a command may use the name itself."""
        hints = get_type_hints(cls, include_extras=True)
        return [
            inspect.Parameter(
                f"{field.name}_",
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(cls)  # type: ignore[arg-type]  # subclasses are dataclasses
        ]

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the group from the arguments for `parameters`; omitted ones have their defaults."""
        names = [parameter.name for parameter in cls.parameters()]
        return cls(**{name.removesuffix("_"): arguments[name] for name in names if name in arguments})
