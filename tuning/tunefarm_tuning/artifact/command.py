"""``python NAME.tunefarm``: runs an artifact from the shell. It is ``__main__.py`` inside the artifact."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

try:
    from loader import (  # type: ignore[import-not-found]  # beside this file, in the zip
        ArtifactError,
        ArtifactInputError,
        load,
        read_manifest,
    )
    from tunefarm_arrays import numpy_dtype  # type: ignore[import-not-found]
    from tunefarm_specialisations import ShapeTable  # type: ignore[import-not-found]
except ModuleNotFoundError:  # as a part of tunefarm
    from tunefarm_tuning.artifact.arrays import numpy_dtype
    from tunefarm_tuning.artifact.loader import ArtifactError, ArtifactInputError, load, read_manifest
    from tunefarm_tuning.artifact.specialisations import ShapeTable


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    here = sys.argv[0]
    parser = argparse.ArgumentParser(
        prog=f"python {Path(here).name}", description="Run this tuned model on .npy files, or time it."
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE.npy",
        help="an input; without a name, the next input in order",
    )
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="write each output to DIR/NAME.npy")
    parser.add_argument("--time", type=int, metavar="N", help="print the median latency of N samples")
    parser.add_argument("--threads", type=int, metavar="N", help="run kernels on N threads")
    parser.add_argument("--shapes", action="store_true", help="print the shapes that it runs, and end")
    parser.add_argument("--info", action="store_true", help="print the manifest and end")
    args = parser.parse_args(argv)
    try:
        if args.info:
            print(json.dumps(read_manifest(here), indent=2))
            return 0
        if args.shapes:
            _print_shapes(read_manifest(here))
            return 0
        return _run(here, args)
    except (ArtifactError, ArtifactInputError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(artifact: str, args: argparse.Namespace) -> int:
    model = load(artifact, threads=args.threads)
    if not args.input and args.time is None:
        raise ArtifactInputError(
            "give --input for each of: "
            + ", ".join(f"{s['name']} ({s['dtype']} {s['shape']})" for s in model.inputs)
        )
    if args.input:
        inputs = _read_inputs(args.input, [spec["name"] for spec in model.inputs])
        outputs = model.run(inputs)
        for number, (name, array) in enumerate(outputs.items()):
            where = ""
            if args.output_dir is not None:
                args.output_dir.mkdir(parents=True, exist_ok=True)
                path = args.output_dir / f"{_file_stem(name, number)}.npy"
                np.save(path, array, allow_pickle=False)
                where = f" -> {path}"
            print(f"{name}: {array.dtype} {list(array.shape)}{where}")
    if args.time is not None and args.input:
        _print_time(model, args.time, inputs, "")
    elif args.time is not None:
        for item in model.shape_table.specialisations:
            ones = {spec["name"]: np.ones(spec["shape"], numpy_dtype(spec["dtype"])) for spec in item.inputs}
            where = "" if model.shape_table.is_single else f"{_shapes_text(item)}: "
            _print_time(model, args.time, ones, where)
    return 0


def _print_time(model: Any, repeat: int, inputs: dict[str, Any], where: str) -> None:
    samples = model.time(repeat=repeat, inputs=inputs)
    print(
        f"{where}median {median(samples) * 1e3:.3f} ms of {len(samples)} samples on {model.threads} threads"
    )


def _print_shapes(manifest: dict[str, Any]) -> None:
    for item in ShapeTable(manifest).specialisations:
        batches = f", also batch {', '.join(map(str, item.batches))}" if item.batches else ""
        latency = f": {item.latency_sec * 1e3:.3f} ms" if item.latency_sec else ""
        print(f"{_shapes_text(item)}{batches}{latency}")


def _shapes_text(item: Any) -> str:
    return ", ".join(f"{spec['name']} {list(spec['shape'])}" for spec in item.inputs)


def _read_inputs(arguments: list[str], names: list[str]) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    unnamed = iter(names)
    for argument in arguments:
        # Both a name and a path may contain "=": an input's name before it decides.
        name = next((n for n in names if argument.startswith(f"{n}=")), None)
        file = argument[len(name) + 1 :] if name is not None else argument
        if name is None and not Path(file).exists() and "=" in argument:
            raise ArtifactInputError(
                f"there is no input {argument.split('=')[0]!r}, and no file {argument!r}"
            )
        if name is None:
            name = next((n for n in unnamed if n not in inputs), None)
            if name is None:
                raise ArtifactInputError(f"{argument} is an extra input: the model has {len(names)}")
        if name in inputs:
            raise ArtifactInputError(f"input {name!r} is given twice")
        inputs[name] = np.load(file, allow_pickle=False)
    return inputs


def _file_stem(name: str, number: int) -> str:
    """Return a file name for an output: its name if that is safe, since it comes from the model; else its number."""
    plain = 0 < len(name) <= 100 and all(c.isalnum() or c in "._-" for c in name) and name[0].isalnum()
    return name if plain else f"output_{number}"


if __name__ == "__main__":
    sys.exit(main())
