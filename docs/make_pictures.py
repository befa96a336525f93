"""Draw the README's picture of a report: as the command shows it, as an SVG.

    python docs/make_pictures.py

It is the report of the documentation's sample (`make_report_sample.py`), whose network is the demo's.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import textwrap
from pathlib import Path

from rich.console import Console

from tunefarm.cli.base.output import Output
from tunefarm.cli.report import show_report

IMAGES = Path(__file__).parent / "images"
_WIDTH = 104


class _Wrapped(Output):
    """An output whose long lines are wrapped: a picture cuts them off, where a terminal would wrap them."""

    def text(self, line: str = "", *, style: str = "") -> None:
        for part in textwrap.wrap(line, _WIDTH, subsequent_indent="    ", drop_whitespace=False) or [""]:
            super().text(part, style=style)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", type=Path, default=Path(__file__).parent / "sample" / "report.json")
    options = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "demo.svg").write_text(picture(options.report), encoding="utf-8")
    return 0


def picture(path: Path) -> str:
    """Return a report's picture."""
    out = _Wrapped()
    out.stdout = Console(record=True, file=io.StringIO(), width=_WIDTH, force_terminal=True)
    out.text("$ make demo", style="bold")
    show_report(out, json.loads(path.read_text(encoding="utf-8")))
    return out.stdout.export_svg(title="tunefarm")


if __name__ == "__main__":
    sys.exit(main())
