"""Draw the pictures of the README from the results of a demo run.

    make demo
    python docs/make_pictures.py --report demo-output/resnet18.report.json

Shows the report as the command shows it, as an SVG.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

from rich.console import Console

from tunefarm.cli.base.output import Output
from tunefarm.cli.report import show_report

IMAGES = Path(__file__).parent / "images"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", type=Path, default=Path("demo-output/resnet18.report.json"))
    options = parser.parse_args()
    report = json.loads(options.report.read_text(encoding="utf-8"))
    out = Output()
    out.stdout = Console(record=True, file=io.StringIO(), width=104, force_terminal=True)
    out.text("$ make demo", style="bold")
    show_report(out, report)
    IMAGES.mkdir(exist_ok=True)
    out.stdout.save_svg(str(IMAGES / "demo.svg"), title="tunefarm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
