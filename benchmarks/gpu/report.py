"""Write one file that says all about a machine's GPU: versions, what held, the benchmark's table, the logs. Send it back.

    make gpu-report                                          # or: python -m benchmarks.gpu.report
    python -m benchmarks.gpu.report --minutes 30 --torch-python /opt/torch/bin/python

It runs the checks (`benchmarks.gpu.check`), then the benchmark (`benchmarks.gpu.run`) for some minutes, each in a process of its own, so that
whatever happens to them is in the report. The file is a zip archive: ``report.md``, ``versions.json``, ``nvml.json`` (what the driver answers,
which our tests can replay), and the output and the logs of both. It has no models and no keys; it names the GPU, its processes,
this machine's packages and the folders of this checkout.

Exit codes: 0 everything was proved, and nothing of the benchmark failed; 1 something was not, or failed; 4 there is no GPU here: the file
has the versions, and nothing was proved.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from benchmarks.gpu import run as benchmark
from benchmarks.gpu.machine import Machine, look
from benchmarks.gpu.proofs import FAILED, NO_GPU, PROVED
from benchmarks.gpu.table import table
from benchmarks.search import json_lines
from benchmarks.search.machine import ROOT

from tunefarm_tuning.core.errors import reason_of
from tunefarm_tuning.measure.gpu.nvml import NvmlError
from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml, record
from tunefarm_tuning.target.toolchain import find_nvcc, versions

_CHECK_SEC = 1800.0
_MORE_SEC = 600.0  # for the benchmark, beyond its minutes
_ASK_SEC = 60.0
_LOG_BYTES = 1 << 20
_LAST_LINES = 30
TIMED_OUT = 124
INTERRUPTED = 130

Run = Callable[[Sequence[str], Path, float], int]
"""Runs a Python module with its arguments, its output into a file, at most so many seconds; returns its exit code, `TIMED_OUT`, or
`INTERRUPTED` by the user. Nothing that it started goes on."""


def main(arguments: list[str] | None = None, *, run: Run | None = None) -> int:
    """Write the report; return the exit code."""
    options = _parser().parse_args(arguments)
    machine = look(options.torch_python)
    with tempfile.TemporaryDirectory(prefix="tunefarm-gpu-report-") as name:
        folder = Path(name)
        _write_versions(folder, machine)
        codes = _proved(folder, options, run or run_module) if machine.gpu else {}
        code = _exit_code(machine, codes)
        page = summary(machine, codes, _said(folder), _benchmark(folder))
        (folder / "report.md").write_text(page, encoding="utf-8")
        _pack(folder, options.output)
    for lack in machine.lacks:
        print(lack)
    if code == NO_GPU:
        print("no GPU here: nothing proved; the report has this machine's versions")
    print(f"report: {options.output}", flush=True)
    return code


def summary(machine: Machine, codes: Mapping[str, int], said: Sequence[str], benchmarked: str) -> str:
    """Return the page that a person reads first.

    Args:
        machine: What `look` found.
        codes: Exit codes by part; empty without a GPU.
        said: The checks' output, line by line.
        benchmarked: The benchmark's table; empty without one.
    """
    gpu = machine.gpu
    parts = [
        "# GPU report",
        "",
        f"{gpu['name']}, {gpu['arch']}, driver {gpu.get('driver', '–')}"
        if gpu
        else "**No GPU here: nothing was proved.**",
        "",
        *(f"- lacks: {lack}" for lack in machine.lacks),
        *(f"- {part}: {_meaning(code)}" for part, code in codes.items()),
        "",
        "## What held",
        "",
        *(f"- {line}" for line in said if line.startswith(("proved", "FAILED")) or " of " in line),
    ]
    if codes.get("check", PROVED) != PROVED:
        parts += ["", "## The checks' last lines", "", "```", *said[-_LAST_LINES:], "```"]
    if benchmarked:
        parts += ["", "## Benchmark", "", benchmarked]
    return "\n".join(parts) + "\n"


def run_module(command: Sequence[str], log: Path, limit_sec: float) -> int:
    """Run a Python module with this interpreter; see `Run`."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            return process.wait(limit_sec)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:  # what it started would keep the GPU
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _proved(folder: Path, options: argparse.Namespace, run: Run) -> dict[str, int]:
    """Run the checks and the benchmark; return their exit codes."""
    print("checking: some minutes", flush=True)
    check = ["benchmarks.gpu.check", "--folder", str(folder / "check")]
    codes = {"check": run(check, folder / "check.log", _CHECK_SEC)}
    if options.minutes > 0 and codes["check"] != INTERRUPTED:
        print(f"benchmark: {options.minutes:g} minutes", flush=True)
        command = [
            "benchmarks.gpu.run",
            *("--output", str(folder / "benchmark.jsonl")),
            *("--minutes", f"{options.minutes:g}"),
            *("--torch-python", options.torch_python),
        ]
        codes["benchmark"] = run(command, folder / "benchmark.log", 60.0 * options.minutes + _MORE_SEC)
    return codes


def _exit_code(machine: Machine, codes: Mapping[str, int]) -> int:
    if not machine.gpu:
        return NO_GPU
    fine = codes["check"] == PROVED and codes.get("benchmark", benchmark.DONE) in (
        benchmark.DONE,
        benchmark.MORE,
    )
    return PROVED if fine else FAILED


def _meaning(code: int) -> str:
    words = {
        0: "all of it",
        1: "something failed",
        3: "more to do",
        4: "no GPU",
        TIMED_OUT: "not done in time",
        INTERRUPTED: "interrupted",
    }
    return f"{words.get(code, 'it died')} (exit code {code})"


def _said(folder: Path) -> list[str]:
    log = folder / "check.log"
    return _end_of(log).decode("utf-8", "replace").splitlines() if log.exists() else []


def _benchmark(folder: Path) -> str:
    try:
        lines = json_lines.load(folder / "benchmark.jsonl")
        return table(lines) if lines else ""
    except Exception as error:
        return f"benchmark.jsonl cannot be read: {reason_of(error)}"


def _end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        return file.read()


def _write_versions(folder: Path, machine: Machine) -> None:
    facts = {
        "at": time.time(),
        "machine": machine.to_json(),
        "platform": platform.platform(),
        "tunefarm": versions(),
        "nvidia": {
            dist.metadata["Name"]: dist.version
            for dist in metadata.distributions()
            if str(dist.metadata["Name"]).lower().startswith(("nvidia", "torch", "tensorrt", "onnxruntime"))
        },
        "commit": _asked(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
        "nvcc": _asked([str(nvcc), "--version"]) if (nvcc := find_nvcc()) else "none",
    }
    (folder / "versions.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    with suppress(NvmlError):
        (folder / "nvml.json").write_text(json.dumps(record(open_nvml()), indent=1), encoding="utf-8")


def _asked(command: list[str]) -> str:
    """Return what a program prints; why it does not, if it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_SEC,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    return (done.stdout or done.stderr).strip()


def _pack(folder: Path, output: Path) -> None:
    """Write the report's files and the ends of all logs as one archive, whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f"{output.name}.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            inside = path.relative_to(folder)
            if ".log" in path.suffixes:  # also the older ones of a log
                archive.writestr(str(inside), _end_of(path))
            elif len(inside.parts) == 1:
                archive.write(path, inside)
    shutil.move(part, output)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("out/gpu-report.zip"))
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="of the benchmark; 0 for none (default: %(default)g)"
    )
    parser.add_argument("--torch-python", default=sys.executable, help="an interpreter that has PyTorch")
    return parser


if __name__ == "__main__":
    sys.exit(main())
