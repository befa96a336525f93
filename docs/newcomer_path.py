"""Walk a newcomer's path from a fresh clone to the first artifact, and record the commands and their times.

    python docs/newcomer_path.py

Writes docs/newcomer.md. Needs a network that packages come over, Chromium, and a free port 8000; nothing else should run meanwhile.
Everything goes into a temporary folder: the clone, the package caches (empty at first), the farm.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "newcomer.md"
MINUTES = 1  # of search
PATIENCE_SEC = 1800.0


@dataclass(frozen=True)
class Step:
    """A step of the newcomer. `typed` is a command; `done` an action in the browser."""

    typed: str
    done: str
    seconds: float


class Newcomer:
    """A user of their own: a home without anything in it, no uv, no settings.

    Args:
        folder: For all that they make.
        name: Of this one; each has a home.
        caches: Of packages; whoever is given the same has them already.
    """

    def __init__(self, folder: Path, name: str, caches: Path) -> None:
        self.home = folder / name
        self.clone = self.home / "tunefarm"
        self.steps: list[Step] = []
        tools = self.home / "bin"
        tools.mkdir(parents=True)
        # A link would not do: an interpreter looks for its library beside itself.
        python = tools / "python3"
        python.write_text(f'#!/bin/sh\nexec "{Path(sys.base_prefix) / "bin" / "python3"}" "$@"\n')
        python.chmod(0o755)
        kept = {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))
        }
        self.env = {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{tools}:/usr/bin:/bin",
            "UV_CACHE_DIR": str(caches / "uv"),
            "PIP_CACHE_DIR": str(caches / "pip"),
            "TERM": "dumb",
        }

    def type(self, command: str, shown: str = "") -> float:
        """Type a command, wait for its end, and note it."""
        began = time.monotonic()
        folder = self.clone if self.clone.is_dir() else self.home
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=folder, env=self.env, capture_output=True, text=True,
            timeout=PATIENCE_SEC, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(
                f"{command}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            )
        return self.note(began, typed=shown or command)

    def note(self, began: float, *, typed: str = "", done: str = "") -> float:
        seconds = time.monotonic() - began
        self.steps.append(Step(typed, done, seconds))
        print(f"{seconds:7.1f} s  {typed or done}", flush=True)
        return seconds

    def set_up(self) -> float:
        self.type(f"git clone -q {ROOT} tunefarm", "git clone <this repository> && cd tunefarm")
        return self.type("make setup")

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Run `tunefarm serve` for the time of the block; yield the link that it prints."""
        began = time.monotonic()
        command = ".venv/bin/tunefarm serve"
        serving = subprocess.Popen(
            command.split(), cwd=self.clone, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip
        try:
            assert serving.stdout is not None
            if not any("the farm answers" in line for line in serving.stdout):
                raise SystemExit(f"{command} ended without a farm: is port 8000 taken?")
            self.note(began, typed=command)
            # In a terminal, `serve` prints it as well.
            printed = subprocess.run(
                [".venv/bin/tunefarm", "dashboard"], cwd=self.clone, env=self.env, check=True, text=True, stdout=subprocess.PIPE
            ).stdout  # fmt: skip
            yield re.findall(r"http\S+/sign-in\S+", printed)[0]
        finally:
            os.killpg(serving.pid, signal.SIGINT)
            serving.wait(60)

    def use_the_dashboard(self, link: str, model: Path, browser: str) -> Path:
        """Sign in, upload, start a job, watch it, download the artifact; return where that is."""
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=arguments)
            page = chromium.new_page()
            page.set_default_timeout(PATIENCE_SEC * 1000)
            began = time.monotonic()
            page.goto(link)
            page.get_by_role("button", name="Continue").click()
            page.wait_for_url("**/jobs")
            self.note(began, done="open the link, press *Continue*")
            began = time.monotonic()
            page.get_by_label("Choose a model").set_input_files(model)
            start = page.get_by_role("button", name="Start the job")
            start.wait_for()
            self.note(began, done=f"drop `{model.name}` on the page; it is imported")
            began = time.monotonic()
            page.get_by_label("Time for the whole job").fill(str(MINUTES))
            start.click()
            page.wait_for_url("**/jobs/job_*")
            page.locator("#state", has_text=re.compile("succeeded|failed")).wait_for()
            if "succeeded" not in page.locator("#state").inner_text():
                raise SystemExit("the job failed")
            self.note(
                began, done=f"set {MINUTES} minute, press *Start the job*; it is tuned, compiled and verified"
            )
            began = time.monotonic()
            with page.expect_download() as download:
                page.get_by_role("link", name=re.compile("Artifact")).click()
            artifact = self.home / "Downloads" / download.value.suggested_filename
            download.value.save_as(artifact)
            self.note(began, done="press *Artifact*")
            chromium.close()
        return artifact


def main() -> int:
    """Walk both ways, and write the page."""
    browser = shutil.which("chromium")
    if browser is None:
        print("there is no Chromium here: nothing was measured", file=sys.stderr)
        return 1
    others = load_of_others()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as scratch:
        folder, caches = Path(scratch), Path(scratch) / "caches"
        first = Newcomer(folder, "first", caches)
        before = received_bytes()
        cold_sec = first.set_up()
        received = received_bytes() - before
        disk = sum(file.lstat().st_size for file in (first.clone / ".venv").rglob("*"))
        make = ".venv/bin/python examples/tiny_convnet.py tiny.onnx"
        first.type(make)
        with first.serving() as link:
            artifact = first.use_the_dashboard(link, first.clone / "tiny.onnx", browser)
            first.type(
                f".venv/bin/tunefarm run {artifact} --time",
                f".venv/bin/tunefarm run ~/Downloads/{artifact.name} --time",
            )
        second = Newcomer(folder, "second", caches)
        warm_sec = second.set_up()
        second.type(make)
        second.type(f".venv/bin/tunefarm tune tiny.onnx --minutes {MINUTES}")
        second.type(".venv/bin/tunefarm run tiny.tunefarm --time")
    PAGE.write_text(
        page_text(
            first.steps,
            second.steps,
            cold_sec=cold_sec,
            warm_sec=warm_sec,
            received=received,
            disk=disk,
            others=others,
        ),
        encoding="utf-8",
    )
    print(PAGE)
    return 0


def page_text(
    dashboard: list[Step],
    terminal: list[Step],
    *,
    cold_sec: float,
    warm_sec: float,
    received: int,
    disk: int,
    others: float,
) -> str:
    """Return the page."""
    counts = [sum(bool(step.typed) for step in steps) for steps in (dashboard, terminal)]
    commands = [f"{count} command{'s' if count != 1 else ''}" for count in counts]
    totals = [sum(step.seconds for step in steps) for steps in (dashboard, terminal)]
    return f"""# A newcomer's path

From a fresh clone to the first artifact: what is typed, and the seconds until it is done. Written by `python docs/newcomer_path.py`, which does all of it in a home of its own.

You need Linux, CPython 3.11 or 3.12, git, make and a C compiler.

## With the dashboard

{commands[0]}, and {len(dashboard) - counts[0]} things to do in the browser; {minutes(totals[0])} in all, of which the job has {MINUTES} min, its import and compile included, as far as these fit.

{table(dashboard)}

The package caches were empty, so the second line is the longest that it can be on this machine: {megabytes(received)} come over the network, and the environment takes {megabytes(disk)} of disk (it has the tools and the tests' servers in it as well).

## In the terminal alone

{commands[1]}, {minutes(totals[1])} in all. This is a second user of the same machine: packages are in the caches, so `make setup` takes {warm_sec:.0f} s instead of {cold_sec:.0f} s.

{table(terminal)}

## How it was measured

{datetime.now(UTC):%Y-%m-%d}, on {machine()}. In the five seconds before it began, other programs used {others:.0%} of the cores. Each line is one run, and another run will differ; `make setup` depends most on the network.
The browser was Chromium, driven by a script. The times leave out reading, choosing a file and clicking. The model is the tiny network of `examples/`, which is quick to compile; the search takes as long as it is told to, whatever the model.
"""


def table(steps: list[Step]) -> str:
    lines = ["| | Seconds |", "|---|---:|"]
    for step in steps:
        does = f"`{step.typed}`" if step.typed else f"In the browser: {step.done}"
        lines.append(f"| {does} | {step.seconds:.1f} |")
    return "\n".join(lines)


def minutes(seconds: float) -> str:
    rounded = round(seconds)
    return f"{rounded // 60} min {rounded % 60:02d} s"


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


def machine() -> str:
    """Return a description of this machine."""
    named = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    total = re.search(r"MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text())
    memory = f", {int(total[1]) / 1e6:.0f} GB of memory" if total else ""
    cpu = f" of an {named[1].strip()}" if named else ""
    return f"{os.cpu_count()} cores{cpu}{memory}, Linux, CPython {platform.python_version()}"


def load_of_others(seconds: float = 5.0) -> float:
    """Return the share of all cores that is in use while this does nothing."""

    def busy_and_all() -> tuple[int, int]:
        times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(times) - times[3] - times[4], sum(times)

    busy, total = busy_and_all()
    time.sleep(seconds)
    later_busy, later_total = busy_and_all()
    return (later_busy - busy) / max(later_total - total, 1)


def received_bytes() -> int:
    """Return the bytes received over the network since the machine started."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    parts = [line.split(":", 1) for line in lines]
    return sum(int(rest.split()[0]) for name, rest in parts if name.strip() != "lo")


if __name__ == "__main__":
    sys.exit(main())
