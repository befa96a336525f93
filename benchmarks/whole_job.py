"""Measure how well a job keeps the budget of the whole job: from the upload's first byte to the artifact on disk.

    flock -x LOCK python -m benchmarks.whole_job net.onnx --minutes 1 [--jobs 2] [--output benchmarks/results/whole_job.md]

Each run has a farm of its own without records, whose device is online before the clock starts. The first job of it has everything before it; the
next ones of the same farm have the network, its records and what earlier compiles found out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tunefarm.client import Client
from tunefarm.embedded import EmbeddedFarm


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeJob:
    """A job of a farm. `sec` is from the upload to the download; of it the search and the compiler's own phases.

    Attributes:
        expected_sec: What the compile was expected to take.
        latency_sec: The artifact's median latency; `untuned_sec` that of the untuned network beside it.
    """

    number: int
    budget_sec: float
    sec: float
    search_sec: float
    trials: int
    compile_sec: float
    expected_sec: float
    latency_sec: float
    untuned_sec: float


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_job", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="of the whole job; 0 compiles without a search"
    )
    parser.add_argument("--jobs", type=int, default=2, help="one after another, in one farm")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    jobs: list[WholeJob] = []
    with (
        tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder,
        EmbeddedFarm(Path(folder, "home")) as farm,
    ):
        farm.wait_ready()
        with Client(farm.url, farm.api_key) as client:
            while not any(device.state == "online" for device in client.devices.list()):
                time.sleep(0.2)
            for number in range(1, options.jobs + 1):
                jobs.append(
                    run_job(client, options.model, options.minutes, Path(folder, str(number)), number)
                )
                print(render(jobs), flush=True)
    if options.output:
        command = f"python -m benchmarks.whole_job {options.model.name} --minutes {options.minutes:g} --jobs {options.jobs}"
        options.output.write_text(f"{render(jobs)}\n\nCommand: `{command}`\n", encoding="utf-8")


def run_job(client: Client, model: Path, minutes: float, folder: Path, number: int) -> WholeJob:
    """Run one job to its artifact."""
    began = time.monotonic()
    handle = client.tune(model, minutes=minutes, progress_bar=False) if minutes else client.compile(model)
    job = handle.wait(poll_sec=0.2, progress_bar=False)
    report = handle.report()
    handle.download(folder)
    return WholeJob(
        number=number,
        budget_sec=60.0 * minutes,
        sec=time.monotonic() - began,
        search_sec=job.tuned_sec,
        trials=job.trials,
        compile_sec=sum(report["phases_sec"].values()),
        expected_sec=job.raw["options"].get("expected_compile_sec", 0.0),
        latency_sec=report["latency"]["tuned"]["median_sec"],
        untuned_sec=report["latency"]["untuned"]["median_sec"],
    )


def render(jobs: Sequence[WholeJob]) -> str:
    """Return the jobs as a table."""
    lines = [
        "| Job | Budget, s | Upload to artifact, s | Share | of it: search, s (trials) | compile, s (expected) | Artifact, ms (untuned) |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {job.number} | {job.budget_sec:g} | {job.sec:.1f} | {f'{job.sec / job.budget_sec:.2f}' if job.budget_sec else '–'} | {job.search_sec:.1f} ({job.trials}) "
        f"| {job.compile_sec:.1f} ({job.expected_sec:.1f}) | {1e3 * job.latency_sec:.1f} ({1e3 * job.untuned_sec:.1f}) |"
        for job in jobs
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
