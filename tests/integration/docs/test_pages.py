"""The README's examples run as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

from tunefarm_tuning.records.record import load_records


def example(name: str) -> str:
    """Return the code block that follows ``<!-- test: name -->`` in the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(rf"<!-- test: {name} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert match, f"README.md has no example {name!r}"
    return match.group(1)


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.exhaustive
def test_the_readmes_examples_run(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "examples" / "tiny_convnet.py", tmp_path / "model.onnx"], check=True
    )

    library = example("library")
    assert len([line for line in library.splitlines() if line.strip()]) <= 10
    printed = run(library, tmp_path)
    assert "of 6 tasks covered by history" in printed
    assert re.search(r"^ +\d+ s  \w+$", printed, re.MULTILINE), "the search shows what it does"
    assert "check-kernels 100%" in printed
    assert re.search(r"^tuned    [0-9.]+ ms$", printed, re.MULTILINE)
    assert (tmp_path / "model.tunefarm").is_file()
    records = list(load_records(tmp_path / "records.jsonl"))
    assert sum(not record.confirmed for record in records) == 32

    run(example("artifact"), tmp_path)


def test_the_generated_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_list_of_decisions_is_complete() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[\d{4}\]\(([^)]+)\) \| (.*) \|$", index, re.MULTILINE)
    titles = {
        page.name: re.sub(r"^# \d+\.? ", "", page.read_text(encoding="utf-8").splitlines()[0])
        for page in sorted(folder.glob("[0-9]*.md"))
    }
    assert [name for name, _ in rows] == list(titles)
    assert not [(name, text) for name, text in rows if not text.startswith(titles[name])]


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in link
    ]
    assert not [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()]
