"""The README's picture of a report: it shows what the command prints today."""

from __future__ import annotations

import runpy

from repository import DOCS


def test_the_picture_of_a_report_is_what_is_drawn_today() -> None:
    drawn: str = runpy.run_path(str(DOCS / "make_pictures.py"))["picture"](DOCS / "sample" / "report.json")
    assert (DOCS / "images" / "demo.svg").read_text(encoding="utf-8") == drawn, (
        "run: python docs/make_pictures.py"
    )
