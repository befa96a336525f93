"""``tunefarm run``: run an artifact."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any
from zipfile import BadZipFile

import typer

from tunefarm.cli.base.output import Output
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tunefarm_tuning.artifact.loader import TunedModel
    from tunefarm_tuning.measure.machine_watch import Watched

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def run_artifact(
    out: Output,
    artifact: Annotated[
        Path,
        typer.Argument(
            metavar="ARTIFACT",
            help="The file NAME.tunefarm. It is native code: run it only if you trust its author (see --verify-key).",
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="[NAME=]FILE",
            help="A .npy file for the named input, or for the next input if unnamed; or a .npz file with an "
            "array per input. Can be given several times. Random numbers by default.",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", "-o", metavar="DIR", help="Folder for the outputs, as NAME.npy."),
    ] = None,
    time: Annotated[bool, typer.Option("--time", help="Measure the latency as well.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Number of latency samples.")] = 10,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            max=1024,
            help="Number of threads; by default, the number that the compile measured with.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of random inputs.")] = 0,
    verify_key: Annotated[
        Path | None,
        typer.Option(
            "--verify-key",
            metavar="FILE",
            envvar="TUNEFARM_VERIFY_KEY",
            help="File of the public keys that you trust (`tunefarm signing list --output FILE`). Nothing of the artifact is loaded "
            "unless ARTIFACT.intoto.jsonl beside it says that one of these keys signed it.",
        ),
    ] = None,
) -> None:
    """Run an artifact. Needs apache-tvm and numpy, and no server."""
    from tunefarm.artifact import load
    from tunefarm_tuning.artifact.loader import ArtifactInputError
    from tunefarm_tuning.measure.machine_watch import Watched, machine_state
    from tunefarm_tuning.reference.random_inputs import random_inputs
    from tunefarm_tuning.workload.task import TensorSpec

    model = load(artifact, threads=threads, verify_key=verify_key)
    if inputs:
        arrays = read_inputs(model.inputs, inputs)
    else:
        out.note(f"no --input: running on random numbers (seed {seed})")
        specs = [TensorSpec.from_json(spec) for spec in model.inputs]
        arrays = dict(zip([spec.name for spec in specs], random_inputs(specs, seed=seed), strict=True))
    try:
        outputs = model.run(arrays)
    except ArtifactInputError as error:
        raise InvalidInputError(clean(str(error), 1000), code="bad-input") from error
    files = {} if output_dir is None else write_outputs(outputs, output_dir)
    before = machine_state()
    samples_sec = model.time(repeat=repeat, inputs=arrays) if time else []
    watched = Watched.between(before, machine_state()) if samples_sec else None
    _print(out, model, outputs, files, samples_sec, watched, random=not inputs)


def read_inputs(specs: list[dict[str, Any]], texts: list[str]) -> dict[str, NDArray[Any]]:
    """Read ``[NAME=]FILE`` texts. Files without a name go to the remaining inputs, in order.

    Raises:
        InvalidInputError: If a file cannot be read, an input comes twice, or there are too many.
    """
    names = [spec["name"] for spec in specs]
    arrays: dict[str, NDArray[Any]] = {}
    for text in texts:
        # Names of inputs and paths may contain "=": the part before it counts as a name only if an input has that name.
        name = next((n for n in names if text.startswith(f"{n}=")), None)
        if name is None and "=" in text and not Path(text).exists():
            raise InvalidInputError(
                f"there is no input {clean(text.split('=')[0])!r} and no file {clean(text)!r}; the inputs are "
                + ", ".join(repr(clean(n)) for n in names),
                code="bad-input",
            )
        loaded = _read(Path(text if name is None else text[len(name) + 1 :]))
        if isinstance(loaded, dict):
            arrays.update(loaded)
            continue
        name = name or next((n for n in names if n not in arrays), None)
        if name is None:
            raise InvalidInputError(
                f"{clean(text)} is an extra input: the model has only {len(names)}", code="bad-input"
            )
        if name in arrays:
            raise InvalidInputError(f"input {clean(name)!r} is given twice", code="bad-input")
        arrays[name] = loaded
    return arrays


def _read(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise InvalidInputError(f"{path} is not a .npy or .npz file: {error}", code="bad-input") from error


def write_outputs(outputs: dict[str, NDArray[Any]], folder: Path) -> dict[str, Path]:
    """Write each output as a .npy file; return the files by output. Odd characters of names become ``_``."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Path] = {}
    for position, (name, array) in enumerate(outputs.items()):
        stem = _UNSAFE.sub("_", name).lstrip(".")[:100] or "output"
        path = folder / f"{stem}.npy"
        if path in files.values():
            path = folder / f"{stem}-{position}.npy"
        np.save(path, array, allow_pickle=False)
        files[name] = path
    return files


def _print(
    out: Output,
    model: TunedModel,
    outputs: dict[str, NDArray[Any]],
    files: dict[str, Path],
    samples_sec: list[float],
    watched: Watched | None,
    *,
    random: bool,
) -> None:
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            **_summary(array),
            "file": str(files[name]) if name in files else None,
        }
        for name, array in outputs.items()
    ]
    timing = (
        {
            "median_sec": median(samples_sec),
            "samples_sec": samples_sec,
            "threads": model.threads,
            "others_cores": None if watched is None else watched.others_sec / watched.wall_sec,
        }
        if samples_sec
        else None
    )
    if out.json:
        out.data({"outputs": rows, "random_inputs": random, "latency": timing})
        return
    out.table(
        ("output", "shape", "dtype", ">smallest", ">mean", ">largest", "file"),
        (
            (
                row["name"],
                quantities.shape(tuple(row["shape"])),
                row["dtype"],
                *(
                    quantities.NONE if row[key] is None else f"{row[key]:.6g}"
                    for key in ("min", "mean", "max")
                ),
                row["file"] or quantities.NONE,
            )
            for row in rows
        ),
    )
    if timing is not None:
        out.text(
            f"{quantities.latency(median(samples_sec))} per inference (median of {len(samples_sec)} samples, "
            f"{quantities.latency(min(samples_sec))} to {quantities.latency(max(samples_sec))}, {quantities.plural(model.threads, 'thread')})"
        )
    if disturbed := other_work(watched, model.threads):
        out.note(disturbed)


def other_work(watched: Watched | None, threads: int) -> str:
    """Return that other work disturbed a timing, if it did as far as is known; else an empty text."""
    if watched is None or watched.is_quiet(threads):
        return ""
    cores = quantities.figures(watched.others_sec / watched.wall_sec)
    return f"other work took {cores} cores meanwhile, so the network is faster than this: time it again on a quiet machine"


def _summary(array: NDArray[Any]) -> dict[str, float | None]:
    if array.size == 0 or array.dtype.kind not in "biuf":
        return {"min": None, "mean": None, "max": None}
    return {"min": float(array.min()), "mean": float(array.mean(dtype="float64")), "max": float(array.max())}
