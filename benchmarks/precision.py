"""Measure what smaller weights, and products in bfloat16, gain and cost: artifacts of each precision, timed in turns.

    python -m benchmarks.precision make FOLDER --networks encoder4 resnet18
    python -m benchmarks.precision make FOLDER --networks encoder4 --seconds 60
    taskset -c 1 python -m benchmarks.precision time FOLDER > table.md

One thread. The first makes untuned artifacts, the second such as were searched for so long (pin it to a core that nobody else
uses), the third times all that lie there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.models.networks import network_file
from benchmarks.search.machine import one_core_target

from tunefarm_tuning import Budget, apply_history_best, compile, extract_tasks, import_model, tune  # noqa: A004
from tunefarm_tuning.artifact.loader import load
from tunefarm_tuning.artifact.reading import manifest_of

PRECISIONS = ("as-model", "float16-weights", "bfloat16-weights", "bfloat16")
_ROUNDS = 15
_SAMPLE_SEC = 0.1


def make(folder: Path, network: str, precision: str, seconds: float) -> None:
    """Write an artifact of a network."""
    target = one_core_target()
    model = import_model(network_file(network, folder))
    records = ()
    if seconds > 0:
        tasks = extract_tasks(model, target, precision=precision)
        records = tune(tasks, budget=Budget(wall_sec=seconds)).records
    name = f"{network}.{f'{seconds:g} s' if seconds else 'untuned'}.{precision}"
    with apply_history_best(records):
        compile(model, target, output=folder / f"{name}.tunefarm", precision=precision, baseline=False)


def table(folder: Path) -> Iterator[str]:
    """Time all artifacts of a folder; yield the lines of a table."""
    yield "| network | tuned | weights | artifact MB | ms | of as-model | largest error | mean error |"
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    groups: dict[tuple[str, str], list[str]] = {}
    for path in sorted(folder.glob("*.tunefarm")):
        network, tuned, precision = path.stem.split(".")
        groups.setdefault((network, tuned), []).append(precision)
    for (network, tuned), precisions in groups.items():
        paths = {
            precision: folder / f"{network}.{tuned}.{precision}.tunefarm"
            for precision in PRECISIONS
            if precision in precisions
        }
        times = _time(list(paths.values()))
        for (precision, path), sec in zip(paths.items(), times, strict=True):
            checks = manifest_of(path)["checks"]
            yield (
                f"| {network} | {tuned} | {precision} | {path.stat().st_size / 1e6:.2f} | {sec * 1e3:.3f} "
                f"| {sec / times[0]:.2f} | {checks['max_rel_error']:.1e} | {checks['mean_rel_error']:.1e} |"
            )


def _time(paths: Sequence[Path]) -> list[float]:
    models = [load(path, threads=1) for path in paths]
    numbers = [max(1, round(_SAMPLE_SEC / median(model.time(repeat=3, number=1)))) for model in models]
    samples: list[list[float]] = [[] for _ in models]
    for _ in range(_ROUNDS):
        for model, number, taken in zip(models, numbers, samples, strict=True):
            taken += model.time(repeat=1, number=number)
    return [median(taken) for taken in samples]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "time"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", nargs="+", default=["encoder4"])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    if options.what == "time":
        for line in table(options.folder):
            print(line)
        return
    for network in options.networks:
        for precision in options.precisions:
            make(options.folder, network, precision, options.seconds)


if __name__ == "__main__":
    main()
