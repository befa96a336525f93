"""Choose the kernels to tune: the convolutions and dense layers of ResNet-18 and MobileNetV2, or of other models.

    python -m benchmarks.search.tasks [--quick] [--model held-out.onnx ...]

Lists them. `--quick` keeps one of each kind: kernel, stride and, for 3×3 and 1×1 convolutions, the size of the image.
`--model` names models to take instead: no figure may be tuned to the two that are in the repository.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.search.machine import ROOT, one_core_target

from tunefarm_tuning import extract_tasks, import_model
from tunefarm_tuning.workload.task import TuningTask

MODELS = ("resnet18", "mobilenet_v2")


@dataclass(frozen=True, kw_only=True)
class BenchTask:
    """A task and how it is called in tables.

    Attributes:
        name: ``"resnet18/conv3x3-64-64-56"``: kernel, channels in and out, size of the output; ``s2`` is a stride of
            two, ``+`` a residual that is added.
        kind: What `--quick` keeps one of.
    """

    name: str
    kind: str
    task: TuningTask


def model_tasks(model: str) -> tuple[TuningTask, ...]:
    """Return all tasks of a model for one core of this machine: one of `MODELS`, or an ONNX file."""
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder:
        return extract_tasks(
            import_model(model_file(model, Path(folder))), one_core_target(), alternatives=False
        )


def model_file(model: str, folder: Path) -> Path:
    """Return the ONNX file of one of `MODELS`, written into the folder; any other name is a file already."""
    if model not in MODELS:
        return Path(model)
    path = folder / f"{model}.onnx"
    path.write_bytes(_build(model).SerializeToString())
    return path


def bench_tasks(models: Sequence[str] = MODELS, *, quick: bool = False) -> list[BenchTask]:
    """Return the distinct convolutions and dense layers of models, in order of first use."""
    tasks: dict[str, BenchTask] = {}
    names: set[str] = set()
    for model in models:
        for task in model_tasks(model):
            if task.workload.key in tasks or (described := describe(task)) is None:
                continue
            label, kind = described
            name = f"{Path(model).stem}/{label}"
            while name in names:
                name += "'"
            names.add(name)
            tasks[task.workload.key] = BenchTask(name=name, kind=kind, task=task)
    if not quick:
        return list(tasks.values())
    heaviest: dict[str, BenchTask] = {}
    for candidate in tasks.values():
        held = heaviest.get(candidate.kind)
        # The margin keeps an added residual from counting as a heavier kernel.
        if held is None or candidate.task.workload.flops > 1.05 * held.task.workload.flops:
            heaviest[candidate.kind] = candidate
    return [task for task in tasks.values() if heaviest[task.kind] is task]


def describe(task: TuningTask) -> tuple[str, str] | None:
    """Return label and kind of a convolution (NHWC, as the graph pipeline lays it out) or dense layer, None of others."""
    shapes = [spec.shape for spec in task.workload.args]
    if "matmul" in task.workload.name and len(shapes) >= 3:
        dims = "x".join(map(str, shapes[0])), "x".join(map(str, shapes[1]))
        return f"dense-{dims[0]}-{dims[1]}", "dense"
    if "conv2d" not in task.workload.name or len(shapes) < 3 or len(shapes[1]) != 4 or len(shapes[-1]) != 4:
        return None
    image, (height, width, inner, outer), out = shapes[0], shapes[1], shapes[-1]
    stride = round(image[1] / out[1])
    plain = "conv" if inner == image[3] else "depthwise" if inner == 1 else "grouped"
    kernel = f"{plain}{height}x{width}"
    strided = f"s{stride}" if stride > 1 else ""
    residual = "+" if out in shapes[2:-1] else ""
    label = f"{kernel}-{image[3]}-{outer}-{out[1]}{strided}{residual}"
    if plain != "conv" or stride > 1 or height not in (1, 3):
        return label, f"{kernel}{strided}"
    if height == 3:
        return label, f"{kernel}@{out[1]}"
    return label, f"{kernel}@{'large' if out[1] >= 28 else 'small'}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which tasks."""
    parser.add_argument("--quick", action="store_true", help="one task of each kind")
    parser.add_argument(
        "--model", nargs="+", default=list(MODELS), help=f"{', '.join(MODELS)}, or ONNX files"
    )
    parser.add_argument("--only", nargs="+", help="tasks whose name contains one of these")


def chosen_tasks(options: argparse.Namespace) -> list[BenchTask]:
    """Return the tasks that the options of `add_options` choose."""
    tasks = bench_tasks(options.model, quick=options.quick)
    return [task for task in tasks if not options.only or any(text in task.name for text in options.only)]


def _build(model: str) -> Any:
    if str(ROOT / "examples") not in sys.path:
        sys.path.insert(0, str(ROOT / "examples"))
    from mobilenet_v2 import build_mobilenet_v2
    from resnet18 import build_resnet18

    return {"resnet18": build_resnet18, "mobilenet_v2": build_mobilenet_v2}[model]()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    for task in chosen_tasks(parser.parse_args()):
        print(f"{task.name:45} {task.task.workload.flops / 1e6:8.1f} MFLOP  x{task.task.weight}  {task.kind}")


if __name__ == "__main__":
    main()
