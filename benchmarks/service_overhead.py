"""Measure what the service costs: one job through a whole farm, and through the engine in one process.

    python benchmarks/service_overhead.py [--trials 64] [--runs 3] [--output benchmarks/results/service_overhead.md]

Both sides import the same network, extract its tasks, try the same number of candidates with the same tuner and seed on this
machine, compile, check and pack. The runs alternate, each in a folder of its own without earlier records. The farm is started before the
clock: a service is running when a job comes. Measurement noise steers a search, so that the two sides do not try the same candidates
in the end, and some candidates cost seconds: the medians of several runs are compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from resnet18 import build_resnet18  # noqa: E402
from tiny_convnet import build_tiny_convnet  # noqa: E402

NETWORKS = {"resnet18": build_resnet18, "tiny": build_tiny_convnet}
AIM_RATIO = 1.10


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--network", choices=sorted(NETWORKS), default="resnet18")
    parser.add_argument("--output", type=Path, help="write the table here as well")
    options = parser.parse_args()
    rows: list[dict[str, tuple[float, float]]] = []
    for number in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder:
            network = Path(folder) / "network.onnx"
            network.write_bytes(NETWORKS[options.network]().SerializeToString())
            row = {
                "engine": engine_alone(network, Path(folder), options.trials, options.seed),
                "service": through_service(network, Path(folder), options.trials, options.seed),
            }
        rows.append(row)
        print(f"run {number + 1}: {row}", file=sys.stderr, flush=True)
    report = render(rows, options)
    print(report)
    if options.output:
        options.output.write_text(report + "\n", encoding="utf-8")
    return 0


def engine_alone(network: Path, folder: Path, trials: int, seed: int) -> tuple[float, float]:
    """Return seconds until the search was over, and until the artifact was there."""
    from tunefarm_tuning import Budget, apply_history_best, extract_tasks, import_model, tune
    from tunefarm_tuning import compile as compile_model

    began = time.monotonic()
    model = import_model(network)
    tasks = extract_tasks(model, alternatives=False)
    tune(tasks, budget=Budget(trials=trials), seed=seed, log_path=folder / "records.jsonl")
    searched = time.monotonic() - began
    with apply_history_best(folder / "records.jsonl"):
        compile_model(model, output=folder / "engine.tunefarm")
    return searched, time.monotonic() - began


def through_service(network: Path, folder: Path, trials: int, seed: int) -> tuple[float, float]:
    """Return the same for the service: from the first byte of the upload to the last of the download."""
    from tunefarm.client import Client
    from tunefarm.embedded import EmbeddedFarm

    with EmbeddedFarm(folder / "home") as farm:
        farm.wait_ready()
        with Client(farm.url, farm.api_key) as client:
            began = time.monotonic()
            searched: list[float] = []
            handle = client.tune(network, trials=trials, seed=seed)
            handle.wait(
                lambda job: (
                    searched.append(time.monotonic() - began)
                    if job.state in ("compiling", "succeeded") and not searched
                    else None
                ),
                poll_sec=0.2,
            )
            handle.download(folder / "download")
            return searched[0], time.monotonic() - began


def render(rows: list[dict[str, tuple[float, float]]], options: argparse.Namespace) -> str:
    lines = [
        "# What the service costs",
        "",
        (
            f"The same job of {options.trials} trials ({options.network}, seed {options.seed}) through a whole embedded farm and "
            f"through the engine alone. Aim: at most {AIM_RATIO:.2f}×."
        ),
        "",
        "| run | engine: search done (s) | artifact (s) | service: search done (s) | artifact (s) | ratio |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for number, row in enumerate(rows, start=1):
        engine, service = row["engine"], row["service"]
        lines.append(
            f"| {number} | {engine[0]:.1f} | {engine[1]:.1f} | {service[0]:.1f} | {service[1]:.1f} "
            f"| {service[1] / engine[1]:.2f}× |"
        )
    engine_sec = median(row["engine"][1] for row in rows)
    service_sec = median(row["service"][1] for row in rows)
    lines += [
        f"| median | | {engine_sec:.1f} | | {service_sec:.1f} | **{service_sec / engine_sec:.2f}×** |",
        "",
        (
            f"Command: `python benchmarks/service_overhead.py --network {options.network} --trials {options.trials} "
            f"--runs {options.runs} --seed {options.seed}`"
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
