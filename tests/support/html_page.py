"""Read an HTML page: its tags, its texts, its tables by section."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "hr", "base", "area", "source", "col", "embed", "track", "wbr"}


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        tags: Each start tag with its attributes.
        texts: All texts that are not a style sheet.
        tables: Rows of cells, by the id of the section that they are in; of all its tables, heads and feet included.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._open: list[str] = []
        self._section = ""
        self.feed(html)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in VOID:
            return
        self._open.append(tag)
        if tag == "section":
            self._section = dict(attrs)["id"] or ""
        elif tag == "tr":
            self.tables.setdefault(self._section, []).append([])
        elif tag in ("td", "th"):
            self.tables[self._section][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.texts.append(data)
        if "td" in self._open or "th" in self._open:
            self.tables[self._section][-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def row(self, section: str, first: str) -> list[str]:
        """Return the cells of the row that begins so."""
        return next(
            [" ".join(cell.split()) for cell in row]
            for row in self.tables[section]
            if row and " ".join(row[0].split()).startswith(first)
        )
