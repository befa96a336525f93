"""Report the CPU seconds of each test and of its processes: `make cpu-report`.

A pytest plugin. Wall-clock says little on a machine that others use too, and a test that waits costs nothing while another
test has the core. Each test's setup, call and teardown is a line of JSON in the file that `--cpu-report` names.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the report's file."""
    parser.addoption(
        "--cpu-report", metavar="FILE", help="append each test's CPU seconds to FILE, as lines of JSON"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the processor seconds between the start of a test's setup and the end of its teardown."""
    path = item.config.getoption("--cpu-report")
    if path is None:
        return (yield)
    cpu_before, started = _tree_cpu_sec(), time.monotonic()
    try:
        return (yield)
    finally:
        wall = time.monotonic() - started
        line = {
            "test": item.nodeid,
            "cpu_sec": round(_tree_cpu_sec() - cpu_before, 2),
            "wall_sec": round(wall, 2),
        }
        with Path(path).open("a", encoding="utf-8") as report:
            report.write(json.dumps(line) + "\n")


def _tree_cpu_sec() -> float:
    """CPU seconds of this process and its descendants, the living and those that were waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (
                    (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                )
            except OSError:
                continue  # it ended meanwhile
            pid = int(entry.name)
            parents[pid] = int(fields[1])
            ticks[pid] = sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    tree, last = {os.getpid()}, 0
    while last != len(tree):
        last = len(tree)
        tree |= {pid for pid, parent in parents.items() if parent in tree}
    return sum(ticks.get(pid, 0) for pid in tree) / _TICKS


def main() -> None:
    """Print the CPU seconds by folder, and the most expensive files, of the report that the command line names."""
    import sys
    from collections import Counter

    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for text in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        path = line["test"].partition("::")[0]
        files[path] += line["cpu_sec"]
        folders[str(Path(path).parent)] += line["cpu_sec"]
    for title, seconds in (("folder", folders), ("file", files)):
        print(f"\nCPU seconds by {title} ({sum(seconds.values()):.0f} in all)")
        for name, total in seconds.most_common(40):
            print(f"{total:8.1f}  {name}")


if __name__ == "__main__":
    main()
