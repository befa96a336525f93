"""Tune a ResNet-18 end to end on this machine: upload it over HTTP, download the tuned artifact, check it.

Usage::

    make demo
    python examples/demo.py [--seconds 120] [--output demo-output] [--network resnet18|tiny]

It starts a farm in a fresh folder (Valkey, gateway, API, worker and device agent as child processes), writes the network,
uploads it, tunes it for this machine's CPU, downloads the artifact, runs it beside ONNX Runtime, and prints what came of it.
Then everything it started is gone, which it checks as well. The exit code says whether all of it held.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from resnet18 import build_resnet18
from tiny_convnet import build_tiny_convnet

import tunefarm
from tunefarm.cli.base.edge import run
from tunefarm.cli.base.output import Output
from tunefarm.cli.progress_view import View, view
from tunefarm.cli.report import show_report
from tunefarm.client import Client, Job, JobHandle, Model
from tunefarm.embedded import EmbeddedFarm, FarmEvent
from tunefarm.live.board import Board

NETWORKS: dict[str, Callable[[], Any]] = {"resnet18": build_resnet18, "tiny": build_tiny_convnet}
TOLERANCE = 1e-3  # of the outputs' root mean square
SLOWER_RATIO = 1.02  # noise that "not slower than untuned" has to bear
GONE_SEC = 120.0


class Checks:
    """Claims that must hold; each is printed."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self.failed = False

    def __call__(self, claim: str, ok: bool, detail: str = "") -> None:
        self.failed = self.failed or not ok
        tail = f" ({detail})" if detail else ""
        self._out.text(f"{'ok    ' if ok else 'FAILED'}  {claim}{tail}", style="green" if ok else "bold red")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Tune a network end to end on this machine, in a farm of its own that is gone afterwards."
    )
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="wall-clock of the whole job (default: %(default)g)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        help="folder for the artifact (default: %(default)s)",
    )
    parser.add_argument("--network", choices=sorted(NETWORKS), default="resnet18")
    parser.add_argument("--tuner", default="xgb", help="search strategy (default: %(default)s)")
    args = parser.parse_args()
    out = Output()
    checks = Checks(out)
    code = run(out, lambda: demo(out, checks, args))
    return code or int(checks.failed)


def demo(out: Output, checks: Checks, args: argparse.Namespace) -> None:
    """Run the whole demo, and note in `checks` which claims hold."""
    marker = f"demo-{uuid.uuid4().hex}"
    began = time.monotonic()
    with scratch_folder(marker) as folder:
        model_file = folder / f"{args.network}.onnx"
        model_file.write_bytes(NETWORKS[args.network]().SerializeToString())
        out.note(f"wrote {model_file.name}: {model_file.stat().st_size / 1e6:.1f} MB, seeded random weights")
        out.note("starting a farm: Valkey, gateway, API, worker, device agent")
        home = folder / "farm"
        try:
            with EmbeddedFarm(home, on_event=teller(out)) as farm:
                farm.wait_ready()
                out.note(f"the farm answers at {farm.url}; a job of {args.seconds:g} s")
                with Client(farm.url, farm.api_key) as client:
                    job = tune(out, client, model_file, args)
                    files = job.download(args.output)
                    report = job.report()
        except BaseException:
            keep_logs(out, home / "logs", args.output)
            raise
        left = wait_until_gone(marker)
        leftovers = sorted(path.name for path in Path(tempfile.gettempdir()).iterdir())

        out.text()
        show_report(out, report)
        out.text()
        out.text(f"{files.artifact}  {files.artifact.stat().st_size / 1e6:.1f} MB", style="bold")
        out.text(f"{files.report}")
        out.text(f"{files.report_page}")
        out.text()
        check_report(checks, report)
        difference = compare(model_file, files.artifact)
        checks(
            "the artifact runs here and agrees with ONNX Runtime",
            difference <= TOLERANCE,
            f"off by {difference:.2g} of the outputs' size",
        )
        checks("every process that was started is gone", not left, ", ".join(left))
        checks("no temporary file is left", not leftovers, ", ".join(leftovers))
    checks("its folder is gone", not folder.exists())
    out.note(f"{time.monotonic() - began:.0f} s in all")


def tune(out: Output, client: Client, model_file: Path, args: argparse.Namespace) -> JobHandle:
    """Upload the model, run a job on it, show how it goes."""
    board = Board()
    with view(out, board) as progress:
        uploaded = client.models.upload(
            model_file, on_progress=lambda *sent: show(progress, board.on_upload, *sent)
        )

        def on_model(model: Model) -> None:
            show(progress, board.on_model, model)

        def on_job(job: Job) -> None:
            show(progress, board.on_job, job)

        client.models.wait(uploaded.id, on_progress=on_model)
        job = client.jobs.create(uploaded.id, target="host", job_seconds=args.seconds, tuner=args.tuner)
        handle = client.job(job.id)
        handle.wait(on_job)
    return handle


def show(progress: View, update: Any, *args: Any) -> None:
    update(*args)
    progress.update()


def check_report(checks: Checks, report: Any) -> None:
    latency, coverage = report["latency"], report["coverage"]
    tuned, untuned = latency["tuned"]["median_sec"], latency["untuned"]["median_sec"]
    checks("outputs agreed with ONNX Runtime before the artifact was offered", report["checks"]["ok"])
    checks(
        "tuned is not slower than untuned", tuned <= SLOWER_RATIO * untuned, f"{untuned / tuned:.1f}× as fast"
    )
    # A small network's kernels can be as fast without tuning as they get.
    as_fast = [miss for miss in coverage["misses"] if miss["reason"] == "slower-than-untuned"]
    checks(
        "kernels were tuned, or found fastest as they were",
        len(as_fast) + coverage["covered"] > 0,
        f"{coverage['covered']} and {len(as_fast)} of {coverage['tasks']}",
    )


def compare(model_file: Path, artifact: Path) -> float:
    """Run artifact and ONNX Runtime on the same input; return the largest difference over the outputs' size."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it is on in the wheel
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Optimised, ONNX Runtime is itself a little off; see docs/adr/0008.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model_file), options, providers=["CPUExecutionProvider"])
    tuned = tunefarm.load(artifact)
    rng = np.random.default_rng(2024)
    inputs = {spec["name"]: rng.standard_normal(spec["shape"]).astype(spec["dtype"]) for spec in tuned.inputs}
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(names, inputs), strict=True))
    outputs = tuned(**inputs)
    return max(
        float(np.abs(outputs[name] - expected[name]).max() / np.sqrt(np.mean(expected[name] ** 2)))
        for name in names
    )


@contextmanager
def scratch_folder(marker: str) -> Iterator[Path]:
    """Make the one folder that everything goes into, temporary files too; delete it at the end.

    Whatever is started inside carries the marker in its environment, however far it forks.
    """
    before = {name: os.environ.get(name) for name in ("TMPDIR", "DEMO_MARKER")}
    with tempfile.TemporaryDirectory(prefix="tunefarm-demo-") as name:
        folder = Path(name)
        temporary = folder / "tmp"
        temporary.mkdir()
        os.environ.update(TMPDIR=str(temporary), DEMO_MARKER=marker)
        tempfile.tempdir = None  # read TMPDIR anew
        try:
            yield folder
        finally:
            for variable, value in before.items():
                if value is None:
                    del os.environ[variable]
                else:
                    os.environ[variable] = value
            tempfile.tempdir = None


def wait_until_gone(marker: str) -> list[str]:
    """Return the processes that carry the marker; an empty list as soon as there is none."""
    until = time.monotonic() + GONE_SEC
    while (left := marked_processes(marker)) and time.monotonic() < until:
        time.sleep(0.2)
    return left


def marked_processes(marker: str) -> list[str]:
    marked = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # The environment as it was at the process's start: this process's own has no marker.
            if marker.encode() in (process / "environ").read_bytes():
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                marked.append(f"{process.name}: {command[:100]}")
        except OSError:
            continue  # it ended meanwhile, or is somebody else's
    return marked


def teller(out: Output) -> Any:
    def tell(event: FarmEvent) -> None:
        if event.kind == "up":
            out.note(f"  {event.part} is up")
        elif event.kind == "died":
            out.warning(event.message)

    return tell


def keep_logs(out: Output, logs: Path, output: Path) -> None:
    """Copy the farm's logs out of the folder that is about to go."""
    if logs.is_dir():
        shutil.copytree(logs, output / "logs", dirs_exist_ok=True)
        out.note(f"the farm's logs are in {output / 'logs'}")


if __name__ == "__main__":
    sys.exit(main())
