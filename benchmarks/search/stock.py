"""Run stock MetaSchedule on one task: `tune_tir` with its defaults, in a fresh child process.

    python -m benchmarks.search.stock --only conv3x3-64-64-56 [--trials 64] [--seed 0]

Evolutionary search, its XGBModel, its LocalBuilder and LocalRunner, batches of 64, as many search threads and build workers as
there are cores (`--batch` and `--cores` change the last two). Kernels are for one core and run on one thread, as ours.
The clock runs from the call of `tune_tir`; importing TVM before it is told apart. A result is known when its batch is
over: then stock itself learns of it. Nothing of it is helped or hindered: it imports every target's intrinsics for each batch,
as shipped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.search.machine import child
from benchmarks.search.tasks import add_options, chosen_tasks

from tunefarm_tuning.workload.task import TuningTask

BATCH = 64  # tune_tir's default
TRIALS = 64
_TIMEOUT_SEC = 7200.0


def run_stock(
    task: TuningTask,
    *,
    kernels: Path,
    stem: str,
    trials: int = TRIALS,
    batch: int = BATCH,
    cores: int | None = None,
    build_timeout_sec: float | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Tune a task with stock MetaSchedule.

    Args:
        task: What to tune.
        trials: At most.
        batch: Trials per iteration.
        build_timeout_sec: Of one build; None leaves it to stock (30 s, the import of all intrinsics included).
        seed: Of all that has one.
        kernels: Folder for every kernel that was the best so far when it was measured, as shared libraries.
        stem: How their names begin.
        cores: Search threads and build workers; None leaves it to stock, which takes all physical cores.

    Returns:
        ``wall_sec``, ``import_sec``; ``trials``: a list of ``[seconds, cost_sec or None]``; ``incumbents``: for each
        new best ``{"sec", "trials", "cost_sec", "kernel"}``; ``failures``: what went wrong; ``split_sec`` (search, build, measure, of its profiler) and ``profile``.
    """
    kernels.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder, child("stock") as process:
        began = time.monotonic()
        process.start()
        start_sec = time.monotonic() - began
        outcome: dict[str, Any] = process.call(
            "tune",
            {
                "ir": task.workload.ir,
                "target": task.target.to_json(),
                "trials": trials,
                "batch": batch,
                "cores": cores or "physical",
                "build_timeout_sec": build_timeout_sec,
                "seed": seed,
                "folder": folder,
                "kernels": str(kernels),
                "stem": stem,
            },
            timeout_sec=_TIMEOUT_SEC,
        )
    return {"start_sec": start_sec, **outcome}


def _tune(params: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    import tvm
    from tvm.s_tir import meta_schedule as ms

    folder = Path(params["folder"])
    keep = _keeping_callback(ms, folder)
    mod = tvm.ir.load_json(params["ir"])
    target = tvm.target.Target(params["target"])
    import_sec = time.monotonic() - began
    with ms.Profiler() as profiler:
        keep.began = time.monotonic()
        ms.tune_tir(
            mod,
            target,
            work_dir=str(folder / "work"),
            max_trials_global=params["trials"],
            num_trials_per_iter=params["batch"],
            measure_callbacks=[keep.callback, *ms.measure_callback.MeasureCallback.create("default")],
            num_tuning_cores=params["cores"],
            builder=_builder(ms, params),
            seed=params["seed"] + 1,  # 0 would be no seed
        )
        wall_sec = time.monotonic() - keep.began
    profile = {str(name): float(sec) for name, sec in profiler.get().items()}
    for incumbent in keep.incumbents:
        incumbent["kernel"] = f"{params['stem']}-{incumbent['trials']}.so"
        _link(Path(incumbent.pop("archive")), Path(params["kernels"]) / incumbent["kernel"])
    return {
        "wall_sec": wall_sec,
        "import_sec": import_sec,
        "trials": keep.trials,
        "incumbents": keep.incumbents,
        "failures": keep.failures,
        "split_sec": split(profile, wall_sec),
        "profile": profile,
    }


def _builder(ms: Any, params: dict[str, Any]) -> Any:
    if params["build_timeout_sec"] is None:
        return "local"
    workers = None if params["cores"] == "physical" else params["cores"]
    return ms.builder.LocalBuilder(max_workers=workers, timeout_sec=params["build_timeout_sec"])


def split(profile: dict[str, float], wall_sec: float) -> dict[str, float]:
    """Return seconds of build and measure by stock's profiler; the rest of the wall-clock is its search (and fitting)."""
    build = profile.get("SendToBuilder", 0.0)
    measure = profile.get("SendToRunner", 0.0) + profile.get("JoinRunnerFutures", 0.0)
    fit = sum(sec for name, sec in profile.items() if "UpdateCostModel" in name)
    return {"build": build, "measure": measure, "fit": fit, "propose": wall_sec - build - measure - fit}


def _keeping_callback(ms: Any, folder: Path) -> Any:
    from tvm.ir.utils import derived_object

    @derived_object
    class Callback(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
        def apply(self, task_scheduler, task_id, measure_candidates, builder_results, runner_results):  # noqa: ARG002
            keep.take(builder_results, runner_results)

    keep = _Keep(folder)
    keep.callback = Callback()
    return keep


class _Keep:
    """A measure callback that keeps every cost, and the archive of each kernel that is the best so far."""

    def __init__(self, folder: Path) -> None:
        self.callback: Any = None
        self.began = 0.0
        self.trials: list[list[float | None]] = []
        self.incumbents: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self._folder = folder

    def take(self, builds: Any, runs: Any) -> None:
        sec = time.monotonic() - self.began
        for build, run in zip(builds, runs, strict=True):
            costs = [float(cost) for cost in run.run_secs] if run.run_secs is not None else []
            cost = sum(costs) / len(costs) if costs else None
            self.trials.append([sec, cost])
            if cost is None:
                self.failures.append(str(build.error_msg or run.error_msg)[:200])
            best = self.incumbents[-1]["cost_sec"] if self.incumbents else float("inf")
            if cost is not None and cost < best:
                archive = self._folder / f"best-{len(self.trials)}.tar"
                shutil.copyfile(str(build.artifact_path), archive)
                self.incumbents.append(
                    {"sec": sec, "trials": len(self.trials), "cost_sec": cost, "archive": str(archive)}
                )


def _link(archive: Path, output: Path) -> None:
    """Make a shared library of stock's archive of object files: the very machine code that it measured."""
    from tvm.support import cc

    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder, tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
        objects = [str(path) for path in Path(folder).rglob("*.o")]
        cc.create_shared(str(output), objects)


HANDLERS = {"tune": _tune}


def add_stock_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, default=BATCH, help="stock's trials per iteration")
    parser.add_argument("--cores", type=int, help="stock's search threads and build workers")
    parser.add_argument(
        "--build-timeout",
        type=float,
        help="seconds; for machines where stock's 30 are not enough for its imports",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    add_stock_options(parser)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for task in chosen_tasks(options):
        with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder:
            outcome = run_stock(
                task.task,
                kernels=Path(folder),
                stem="stock",
                trials=options.trials,
                batch=options.batch,
                cores=options.cores,
                build_timeout_sec=options.build_timeout,
                seed=options.seed,
            )
        print(json.dumps({"task": task.name, **outcome}))


if __name__ == "__main__":
    main()
