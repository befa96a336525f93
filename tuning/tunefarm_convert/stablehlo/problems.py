"""What of a program is not read, told at once."""

from __future__ import annotations

from tunefarm_convert.stablehlo.program import Operation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean

_LISTED = 24


class Problems:
    """Problems in the order in which they were found; those of one kind are one, with its first place and a count."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], dict[int, str]] = {}
        self._codes: list[str] = []
        self._first: Operation | None = None

    def add(self, operation: Operation, why: str, code: str) -> None:
        """Note an operation that is not read: for some reason, or of no known kind."""
        key = (operation.kind, why)
        self._places.setdefault(key, {}).setdefault(operation.number, operation.place)
        self._codes.append(code)
        self._first = self._first or operation

    def add_text(self, text: str, code: str) -> None:
        """Note another problem."""
        self._places.setdefault(("", text), {})
        self._codes.append(code)

    def raise_any(self) -> None:
        """Raise an error about all problems, if there are some.

        Raises:
            InvalidModelError: With the code of the first one.
        """
        if not self._places:
            return
        described = [_described(kind, why, places) for (kind, why), places in self._places.items()]
        more = f"; and {len(described) - _LISTED} more kinds" if len(described) > _LISTED else ""
        fields: dict[str, object] = {}
        if self._first is not None:
            fields["operator"] = clean(self._first.kind, 60)
            fields["node"] = str(self._first.number)
        kinds = [clean(kind, 60) for kind, _ in self._places if kind]
        raise InvalidModelError(
            f"tunefarm does not read this of the StableHLO program: {'; '.join(described[:_LISTED])}{more}",
            code=self._codes[0],
            operators=list(dict.fromkeys(kinds))[:_LISTED],
            **fields,
        )


def _described(kind: str, why: str, places: dict[int, str]) -> str:
    if not kind:
        return why
    first = next(iter(places.values()))
    count = f", {len(places)} in all" if len(places) > 1 else ""
    return f"{first}{count}" + (f": {why}" if why else "")
