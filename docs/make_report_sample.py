"""Keep a job's report as the sample of the documentation: the document, its page, and a picture of the page's top.

    make demo
    python docs/make_report_sample.py --report demo-output/resnet18.report.json

Without ``--report`` the page and the picture are drawn anew from the document that is kept, as after a change of the
page. The picture needs Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tunefarm_app.report.document import JobReport
from tunefarm_app.report.page import report_page

SAMPLE = Path(__file__).parent / "sample"
PICTURE = Path(__file__).parent / "images" / "report.png"
_SIZE = "1000,1440"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", type=Path, default=SAMPLE / "report.json")
    options = parser.parse_args()
    report = JobReport.model_validate_json(options.report.read_bytes())
    SAMPLE.mkdir(exist_ok=True)
    (SAMPLE / "report.json").write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
    page = SAMPLE / "report.html"
    page.write_text(report_page(report), encoding="utf-8")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print(f"there is no Chromium here: {PICTURE} is as it was", file=sys.stderr)
        return 1
    _draw(browser, page)
    return 0


def _draw(browser: str, page: Path) -> None:
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser,
                "--headless",
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                f"--window-size={_SIZE}",
                f"--screenshot={PICTURE.absolute()}",
                page.absolute().as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )


if __name__ == "__main__":
    sys.exit(main())
