"""Show a value in a REPL as a line and in a notebook as a table. Each class lists its fields in `summary`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

_MOST_TEXT = 200
_LEFT = ' style="text-align: left"'


class Shown:
    """A value that is shown by a few facts. Its attributes have the others, and `raw` has all."""

    __slots__ = ()

    def summary(self) -> Mapping[str, str]:
        """Return the facts by name, the most important first. The fact without a name is the value's own name.

        An empty fact is not shown.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {line(self)}>"

    def _repr_html_(self) -> str:
        """Return the value as HTML for a notebook."""
        rows = "".join(
            f"<tr>{_cell('th', name or type(self).__name__)}{_cell('td', fact)}</tr>"
            for name, fact in _plain(self).items()
            if fact
        )
        return f"<table>{rows}</table>"


def line(value: Shown) -> str:
    """Return a value's facts in one line."""
    facts = _plain(value)
    title = facts.pop("", "")
    named = ", ".join(f"{name} {fact}" for name, fact in facts.items() if fact)
    return ": ".join(part for part in (title, named) if part)


def html_table(items: Iterable[object]) -> str:
    """Return an HTML table with a row per item."""
    shown = [item for item in items if isinstance(item, Shown)]
    if not shown:
        return "<em>none</em>"
    facts = [_plain(item) for item in shown]
    names = [name for name in facts[0] if any(row.get(name) for row in facts)]
    head = "".join(_cell("th", name or type(shown[0]).__name__) for name in names)
    rows = [f"<tr>{''.join(_cell('td', row.get(name, '')) for name in names)}</tr>" for row in facts]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(tag: str, text: str) -> str:
    return f"<{tag}{_LEFT}>{escape(text)}</{tag}>"


def _plain(value: Shown) -> dict[str, str]:
    """Return a value's facts without control characters, because other people choose the names in them."""
    return {
        name: "".join(letter if letter.isprintable() else " " for letter in fact[:_MOST_TEXT])
        for name, fact in value.summary().items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """The report of a job as one self-contained HTML page. A notebook shows it."""

    html: str

    def __repr__(self) -> str:
        return f"<ReportPage of {len(self.html.encode()) / 1000:.0f} kB: a notebook shows it, `html` is its text>"

    def _repr_html_(self) -> str:
        # In its own frame, so that its styles and the notebook's do not mix; it needs no script.
        style = "width: 100%; height: 36em; border: 1px solid #8888"
        return f'<iframe sandbox title="report" style="{style}" srcdoc="{escape(self.html)}"></iframe>'
