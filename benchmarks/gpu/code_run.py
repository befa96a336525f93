"""Build every kernel of ResNet-50 and BERT-base for GPUs, without one, and note what their machine code asks for.

    python -m benchmarks.gpu.code_run --output out/gpu_code.jsonl --minutes 60     # again until it ends with exit code 0
    python -m benchmarks.gpu.code_run --output out/gpu_code.jsonl --table          # results/gpu_code.md

Each kernel is built with its default schedule; then, of every other task (sm_90) or every sixth (the other architectures), the first
two proposals of a search that the scheduler takes. A line is written when a kernel is finished, and finished kernels are skipped. Needs
``nvcc`` (13, for sm_100) and ``nvdisasm`` (in the lock file). Exit codes: 0 all of it is done, 3 there is more to do, 4 no compiler.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.gpu.code_table import table
from benchmarks.gpu.machine_code import find_nvdisasm
from benchmarks.gpu.networks import DTYPES, NETWORKS, network_file
from benchmarks.gpu.parts import child_of
from benchmarks.search import json_lines

from tunefarm_tuning import extract_tasks, import_model
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.process import ChildProcess
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.toolchain import check_can_build
from tunefarm_tuning.workload.task import TuningTask

DONE, MORE, NO_COMPILER = 0, 3, 4
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
DEFAULT, SEARCHED = "default", "searched"
_EVERY = {"sm_90": 2}
_OTHERS_EVERY = 6
_CANDIDATES = 2
_SEED = 25
_BUILD_SEC = 600.0


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.table:
        print(table(json_lines.load(options.output)))
        return DONE
    try:
        for arch in options.archs:
            check_can_build(parse_target(f"cuda/{arch}"))
    except TunefarmError as error:
        _tell(error.message)
        return NO_COMPILER
    if find_nvdisasm() is None:
        _tell("no nvdisasm: instructions are not counted (uv sync)")
    until = time.monotonic() + 60.0 * options.minutes
    known = {_key(line) for line in json_lines.load(options.output)}
    with tempfile.TemporaryDirectory(prefix="gpu-code-") as folder:
        for how, network, dtype, arch in product(
            (DEFAULT, SEARCHED), options.networks, options.dtypes, options.archs
        ):
            path = network_file(network, dtype, options.output.with_suffix(".files"))
            about = {"network": network, "dtype": dtype, "arch": arch, "how": how}
            if not _build_all(path, about, options.output, known, Path(folder), until):
                return MORE
    return DONE


def _build_all(
    network: Path,
    about: dict[str, str],
    output: Path,
    known: set[tuple[str, ...]],
    folder: Path,
    until: float,
) -> bool:
    """Build what is missing of a network for an architecture; return whether the time was enough."""
    if time.monotonic() >= until:
        return False
    every = 1 if about["how"] == DEFAULT else _EVERY.get(about["arch"], _OTHERS_EVERY)
    tasks = _tasks(network, about["arch"])[::every]
    with closing(child_of("benchmarks.gpu.code_child")) as child:
        for task in tasks:
            line: dict[str, Any] = {**about, "kernel": task.workload.name, "calls": task.weight}
            if _key(line) in known:
                continue
            if time.monotonic() >= until:
                return False
            began = time.monotonic()
            line |= {"built": _built(child, task, about["how"], folder), "seconds": time.monotonic() - began}
            json_lines.append(output, line)
            _tell(f"{line['seconds']:5.1f} s  {' '.join(_key(line))}")
    return True


def _tasks(network: Path, arch: str) -> list[TuningTask]:
    """Return a network's tasks, from the file where an earlier run left them."""
    path = network.with_name(f"{network.stem}-{arch}.json")
    if not path.exists():
        tasks = extract_tasks(import_model(network), f"cuda/{arch}", alternatives=False)
        path.write_text(json.dumps([task.to_json() for task in tasks]), encoding="utf-8")
    return [TuningTask.from_json(task) for task in json.loads(path.read_text(encoding="utf-8"))]


def _built(child: ChildProcess, task: TuningTask, how: str, folder: Path) -> list[dict[str, Any]]:
    params = {
        "ir": task.workload.ir,
        "target": task.target.to_json(),
        "folder": str(folder),
        "count": _CANDIDATES,
        "seed": _SEED,
    }
    try:
        built: list[dict[str, Any]] = child.call(how, params, timeout_sec=_BUILD_SEC)
    except TunefarmError as error:
        return [{"failed": error.message}]
    return built


def _key(line: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(line[name]) for name in ("how", "network", "dtype", "arch", "kernel"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("out/gpu_code.jsonl"))
    parser.add_argument("--minutes", type=float, default=60.0, help="of this run (default: %(default)g)")
    parser.add_argument("--networks", nargs="+", choices=sorted(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--archs", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--table", action="store_true", help="print what is known, build nothing")
    return parser


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
