"""What a REPL and a notebook show of a value: a line, and a small table. The facts are in `tunefarm.client.results.facts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

_MOST_TEXT = 200
_LEFT = ' style="text-align: left"'


class Shown:
    """A value that is shown by a few facts. The rest is in its attributes, and all of it in `raw`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {line(self)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        rows = "".join(
            f"<tr>{_cell('th', name or type(self).__name__)}{_cell('td', fact)}</tr>"
            for name, fact in _plain(self).items()
            if fact
        )
        return f"<table>{rows}</table>"


def line(value: Shown) -> str:
    """Return a value's facts in one line."""
    facts = _plain(value)
    called = facts.pop("", "")
    rest = ", ".join(f"{name} {fact}" for name, fact in facts.items() if fact)
    return ": ".join(part for part in (called, rest) if part)


def html_table(items: Iterable[object]) -> str:
    """Return a table with a row for each of the items that are shown by facts."""
    shown = [item for item in items if isinstance(item, Shown)]
    if not shown:
        return "<em>none</em>"
    facts = [_plain(item) for item in shown]
    names = [name for name in facts[0] if any(one.get(name) for one in facts)]
    head = "".join(_cell("th", name or type(shown[0]).__name__) for name in names)
    rows = [f"<tr>{''.join(_cell('td', one.get(name, '')) for name in names)}</tr>" for one in facts]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(tag: str, text: str) -> str:
    return f"<{tag}{_LEFT}>{escape(text)}</{tag}>"


def _plain(value: Shown) -> dict[str, str]:
    """Return a value's facts without anything that a terminal would obey: names in them are a stranger's."""
    from tunefarm.client.results.facts import facts

    found: Mapping[str, str] = facts(value)
    return {
        name: "".join(letter if letter.isprintable() else " " for letter in fact[:_MOST_TEXT])
        for name, fact in found.items()
    }
