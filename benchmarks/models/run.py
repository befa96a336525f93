"""Tune, compile and time whole networks as a user would, beside ONNX Runtime, untuned TVM and PyTorch.

    python -m benchmarks.models.run --output out/models.jsonl --minutes 20 --threads 1 2
    python -m benchmarks.models.run --output out/models.jsonl --models resnet18 mine.onnx --minutes 5
    python -m benchmarks.models.run --output out/others.jsonl --models others --minutes 5
    python -m benchmarks.models.run --output out/models.jsonl --recompile       # with the same records
    python -m benchmarks.models.run --output out/models.jsonl --retime          # the same artifacts

Of each model and number of threads: tune, compile, then time all contenders in turns, each in a process of its own. A line
is written when a model is finished, and what is finished is not run again. Records and artifacts are kept
(`--records`), so that a run with more minutes goes on from one with fewer, and one that was killed from where it was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.models.distance import kernel_sum_sec, task_rows
from benchmarks.models.facts import machine, package_versions
from benchmarks.models.networks import MEASURED, OTHERS, network_file, written_out
from benchmarks.models.table import NOT_ASKED, describe
from benchmarks.models.timing import ROUNDS, UNTUNED, Timing, best_onnxruntime, time_network, torch_files
from benchmarks.models.tuned import TunedNetwork
from benchmarks.search import json_lines
from benchmarks.search.machine import cores_target

from tunefarm_tuning import Peak, import_model, measure_peak
from tunefarm_tuning.artifact.loader import read_manifest
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.workload.model import Model


class ModelsBenchmark:
    """One file of results, with a folder of records and artifacts beside it."""

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        self._path = path
        self._files = options.records or path.with_suffix(".records")
        self._options = options
        self._lines = json_lines.load(path)
        self._peaks: dict[int, Peak] = {}

    def run(self, name: str, threads: int) -> None:
        """Run the missing measurements of a model for a number of threads."""
        options = self._options
        title = Path(name).stem
        known = finished(self._lines, title, threads)
        again = options.retime or options.recompile
        if known is not None and not again and known["minutes"] >= options.minutes:
            _tell(f"{title}, {threads} thread(s): finished before")
            return
        with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as scratch:
            folder = Path(scratch)
            file = network_file(name, folder)
            model = import_model(file)
            network = TunedNetwork(
                model, cores_target(threads), threads=threads, files=self._files, name=f"{title}-t{threads}"
            )
            if not again:
                network.tune(options.minutes, seed=options.seed)
            if not options.retime or not network.artifact_path.exists():
                network.compile()
            manifest = read_manifest(network.artifact_path)
            rows = task_rows(
                network.task_facts(),
                manifest["records"],
                self._peak(threads),
                threads=threads,
                kernels=network.report_kernels(),
            )
            timing = self._time(network, model, file, folder, threads)
        minutes = options.minutes
        if again:
            minutes = known["minutes"] if known else round(network.tuning.wall_sec / 60.0, 3)
        line = {
            "kind": "network",
            "model": title,
            "threads": threads,
            "minutes": minutes,
            "trials": network.tuning.trials,
            "failures": network.tuning.failures,
            "tuning_sec": network.tuning.wall_sec,
            **result_of(timing),
            "kernel_sum_ms": 1e3 * kernel_sum_sec(rows),
            "num_tasks": manifest["coverage"]["tasks"],
            "num_covered": manifest["coverage"]["covered"],
            "misses": [(miss["name"], miss["reason"]) for miss in manifest["coverage"]["misses"]],
            "tasks": rows,
            "peak": self._peak(threads).to_json(),
            "versions": package_versions(),
            "machine": machine() | {"target": cores_target(threads).key},
            "measured_at": time.time(),
        }
        json_lines.append(self._path, line)
        self._lines.append(line)
        _tell(describe(line))

    def _time(
        self,
        network: TunedNetwork,
        model: Model,
        file: Path,
        folder: Path,
        threads: int,
    ) -> Timing:
        files = {"artifact": network.artifact_path, "onnxruntime": file}
        if threads > 1:
            files["onnxruntime_still"] = file
        others, left_out = torch_files(file)
        files |= others
        if self._options.no_untuned:
            left_out |= dict.fromkeys(UNTUNED, NOT_ASKED)
        else:
            files |= {kind: folder / f"{kind}.so" for kind in UNTUNED}
            with closing(CompileSession(model, cores_target(threads), folder, CompileLimits())) as session:
                for kind in UNTUNED:
                    session.build_model(files[kind], {}, default_schedules=kind != "plain")
        return time_network(
            files,
            model.inputs,
            threads=threads,
            folder=folder,
            rounds=self._options.rounds,
            left_out=left_out,
        )

    def _peak(self, threads: int) -> Peak:
        if threads not in self._peaks:
            self._peaks[threads] = measure_peak(cores_target(threads), threads=threads)
        return self._peaks[threads]


def finished(lines: Sequence[dict[str, Any]], title: str, threads: int) -> dict[str, Any] | None:
    """Return the last line of a model for a number of threads."""
    wanted = {"kind": "network", "model": title, "threads": threads}
    return next((line for line in reversed(lines) if wanted.items() <= line.items()), None)


def result_of(timing: Timing) -> dict[str, Any]:
    """Return the figures of a line: medians, and ratios to ONNX Runtime round by round."""
    samples = timing.samples_sec
    best = best_onnxruntime(samples)
    tuned = samples["artifact"]
    of_difference = timing.difference
    return {
        "latency_ms": {kind: 1e3 * median(seconds) for kind, seconds in samples.items()},
        "spread": {
            kind: (max(seconds) - min(seconds)) / median(seconds) for kind, seconds in samples.items()
        },
        "samples_ms": {kind: [1e3 * sec for sec in seconds] for kind, seconds in samples.items()},
        "onnxruntime_best": best,
        "ratio": median(ours / its for ours, its in zip(tuned, samples[best], strict=False)),
        "left_out": timing.left_out,
        "largest_difference": of_difference.largest if of_difference else None,
        "relative_difference": of_difference.relative if of_difference else None,
    }


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="file of results, JSON lines")
    parser.add_argument(
        "--models",
        nargs="+",
        default=["measured"],
        help=f"measured, which is the default ({', '.join(MEASURED)}); others ({', '.join(OTHERS)}); "
        "or some of these, unet_resize, or ONNX files",
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--minutes", type=float, default=20.0, help="of tuning, in all runs together")
    parser.add_argument(
        "--records", type=Path, help="folder of records and artifacts; beside the output if left out"
    )
    parser.add_argument(
        "--retime", action="store_true", help="time the artifacts that are there; tune and compile nothing"
    )
    parser.add_argument(
        "--recompile", action="store_true", help="compile the records that are there; tune nothing"
    )
    parser.add_argument("--no-untuned", action="store_true", help="leave the network without records out")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="samples of each contender")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    benchmark = ModelsBenchmark(options.output, options)
    failed = False
    for name in written_out(options.models):
        for threads in options.threads:
            try:
                benchmark.run(name, threads)
            except TunefarmError as error:  # the others can still be measured
                failed = True
                _tell(f"{Path(name).stem}, {threads} thread(s): {error.code}: {error.message}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
