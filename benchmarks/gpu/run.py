"""Time networks on this machine's GPU: untuned, tuned by an embedded farm, and in PyTorch.

    python -m benchmarks.gpu.run --output out/gpu.jsonl --minutes 10
    python -m benchmarks.gpu.run --output out/gpu.jsonl --minutes 20 --tune-minutes 5 --networks bert --dtypes float16
    python -m benchmarks.gpu.run --output out/gpu.jsonl --table

Each finished part is a line, and what is finished is not run again: a run that was cut off, or that ran out of its minutes, goes on
where it was. Networks, artifacts and the farm with all its records are in ``OUTPUT.files/``; take both along to go on elsewhere.
Needs no network. Exit codes: 0 all of it is done, 1 something failed or gave wrong results, 3 there is more to do, 4 no GPU here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu import plan
from benchmarks.gpu.farm_job import GpuFarm, others_sec
from benchmarks.gpu.machine import Machine, look, readings
from benchmarks.gpu.networks import DTYPES, NETWORKS
from benchmarks.gpu.parts import Place, run_part
from benchmarks.gpu.plan import Step
from benchmarks.gpu.table import table
from benchmarks.search import json_lines

from tunefarm.client.errors import ClientError
from tunefarm_tuning.core.errors import TunefarmError, reason_of

DONE, FAILED, MORE, NO_GPU = 0, 1, 3, 4
_FAILURES = (ClientError, OSError, RuntimeError, TimeoutError, TunefarmError, subprocess.SubprocessError)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.table:
        print(table(json_lines.load(options.output)))
        return DONE
    machine = look(options.torch_python)
    for lack in machine.lacks:
        _tell(lack)
    if not machine.gpu:
        _tell("no GPU here: nothing was measured")
        return NO_GPU
    json_lines.append(options.output, {"kind": "machine", "machine": machine.to_json(), "at": time.time()})
    return measure(options, machine)


def measure(options: argparse.Namespace, machine: Machine) -> int:
    """Run the missing parts while there is time."""
    until = time.monotonic() + 60.0 * options.minutes
    folder = options.output.with_suffix(".files").absolute()
    setup = Place(
        folder=folder,
        target=machine.target,
        torch_python=options.torch_python,
        tf32=options.tf32,
        inductor=options.inductor,
    )
    pairs = [(network, dtype) for network in options.networks for dtype in options.dtypes]
    lines = json_lines.load(options.output)
    skipped = {(part, *pair) for pair in pairs for part in impossible(machine)}
    failed = False
    with GpuFarm(folder / "farm", _tell) as farm:
        while step := plan.next_step(
            lines,
            pairs,
            tune_sec=60.0 * options.tune_minutes,
            left_sec=until - time.monotonic(),
            others_sec=others_sec(),
            skipped=skipped,
        ):
            line = _line(step, setup, farm, lines)
            json_lines.append(options.output, line)
            lines.append(line)
            _tell(_said(line))
            if "failed" in line:
                failed = True
                skipped.add((step.part, step.network, step.dtype))
    print(table(lines))
    done = plan.next_step(
        lines, pairs, tune_sec=60.0 * options.tune_minutes, left_sec=float("inf"), skipped=skipped
    )
    wrong = any(line.get("ok") is False for line in lines)
    return FAILED if failed or wrong else DONE if done is None else MORE


def impossible(machine: Machine) -> tuple[str, ...]:
    """Return the parts that cannot be done on a machine."""
    compiler = any(lack.startswith(("no compiler", "no target")) for lack in machine.lacks)
    tunes = (plan.UNTUNED, plan.TUNE, plan.TUNED) if compiler else ()
    return (*tunes, *(() if machine.torch else (plan.TORCH, plan.COMPILED)))


def _line(step: Step, setup: Place, farm: GpuFarm, lines: list[dict[str, Any]]) -> dict[str, Any]:
    began = time.monotonic()
    line: dict[str, Any] = {"kind": step.part, "network": step.network, "dtype": step.dtype}
    _tell(f"{step.network} {step.dtype}: {step.part}" + (f", {step.tune_sec:.0f} s" if step.tune_sec else ""))
    try:
        line |= run_part(step, setup, farm, lines)
    except _FAILURES as error:
        line["failed"] = " ".join(reason_of(error).split())[:600]
    return line | {"seconds": time.monotonic() - began, "gpu": readings(), "at": time.time()}


def _said(line: dict[str, Any]) -> str:
    of = f"{line['network']} {line['dtype']}: {line['kind']}"
    if "failed" in line:
        return f"{of} failed: {line['failed']}"
    if "samples_sec" in line:
        answer = "right" if line["ok"] else f"WRONG: {line['wrong']}"
        return f"{of} {1e3 * min(line['samples_sec']):.3f} ms at best, {answer}"
    return f"{of}: {line['trials']} trials, {line['covered']} of {line['tasks']} kernels"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("out/gpu.jsonl"))
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="of this run, all in all (default: %(default)g)"
    )
    parser.add_argument(
        "--tune-minutes",
        type=float,
        default=5.0,
        help="of search for each network and dtype, all runs together (default: %(default)g)",
    )
    parser.add_argument("--networks", nargs="+", choices=sorted(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--torch-python", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--tf32", action="store_true", help="let PyTorch round float32 products to TF32")
    parser.add_argument(
        "--inductor",
        default="max-autotune",
        help="the mode of torch.compile (default: %(default)s; reduce-overhead takes half a minute)",
    )
    parser.add_argument("--table", action="store_true", help="print what is known, run nothing")
    return parser


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
