"""`verify`: compares an artifact's outputs with its model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.reading import fetch_library, fetch_parts, manifest_of
from tunefarm_tuning.compiler.artifact_comparison import compare_packed
from tunefarm_tuning.compiler.model_comparison import ModelComparison, compare_model
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.json_fields import JsonFields
from tunefarm_tuning.measure.device import RemoteDevice, device_kind
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.reference.comparison import Comparison
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.reference.samples import SampleFeeds, sample_paths, write_all_feeds
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model, entry_name
from tunefarm_tuning.workload.precision import Precision, parse_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(JsonFields):
    """How an artifact's outputs compare with ONNX Runtime's.

    Attributes:
        ok: Whether all outputs are within the tolerance.
        max_abs_error: The largest difference of two finite elements.
        max_rel_error: The same difference as a share of its tensor's root mean square.
        outputs: The comparison of every output on every set of inputs.
        message: What is wrong with the first wrong output; empty if `ok`.
    """

    ok: bool
    max_abs_error: float
    max_rel_error: float
    outputs: tuple[Comparison, ...]
    message: str


def verify(
    artifact: Path | str,
    model: Model,
    *,
    device: RemoteDevice | None = None,
    seed: int = 0,
    limits: CompileLimits | None = None,
    samples: Path | str | Sequence[Path | str] = (),
) -> VerifyReport:
    """Run an artifact, and its model in ONNX Runtime, on the same inputs, and compare the outputs.

    Args:
        artifact: The ``.tunefarm`` file.
        model: The model that it was compiled from.
        device: Where to run the artifact; None is this machine, where its own loader runs it.
        seed: Seed of the random inputs.
        limits: Limits of the child processes.
        samples: Real inputs, which are compared first: files as for `compile`.

    Returns:
        The largest errors, and the comparison of every output.

    Raises:
        InvalidInputError: If the file is not an artifact, damaged, made for another machine or version, or of another model
            (code other-model). If the samples do not fit, as `check_samples` says.
        InvalidModelError: If ONNX Runtime cannot run the model; if the artifact crashed or exceeded its time on this machine.
        RunFailed: If the artifact crashed or exceeded its time on a device.
        DeviceLostError: If the device is away.
    """
    path, limits = Path(artifact), limits or CompileLimits()
    manifest = manifest_of(path)
    if manifest["model"]["sha256"] != model.sha256:
        raise InvalidInputError(f"{path.name} was compiled from another model", code="other-model")
    with closing(ScratchDir()) as scratch:
        feeds = write_all_feeds(
            sample_paths(samples),
            model,
            scratch.path,
            limits=limits.of_samples(),
            limit_bytes=limits.samples_bytes,
        )
        sets = _input_sets(manifest, model, feeds, scratch.path, seed=seed, limits=limits)
        if device is None:
            comparison = compare_packed(path, sets, limits, Cancellation())
        else:
            comparison = _compare_on(device, path, manifest, model, sets, scratch.path, limits)
    errors = comparison.errors()
    return VerifyReport(
        ok=comparison.ok,
        max_abs_error=errors["max_abs_error"],
        max_rel_error=errors["max_rel_error"],
        outputs=tuple(comparison.outputs),
        message=comparison.message,
    )


def _input_sets(
    manifest: Mapping[str, Any],
    model: Model,
    feeds: SampleFeeds,
    folder: Path,
    *,
    seed: int,
    limits: CompileLimits,
) -> list[InputSet]:
    """Return inputs for each function of the artifact, with the outputs that ONNX Runtime gives."""
    sets: list[InputSet] = []
    for position, (entry, each) in enumerate(_entries(manifest, model).items()):
        # The entry's name is the artifact's, which may be a stranger's.
        inner = folder / f"shapes-{position}"
        inner.mkdir()
        reference = Reference(
            each,
            inner,
            threads=int(manifest["threads"]),
            memory_bytes=limits.memory_bytes,
            timeout_sec=limits.model_sec,
        )
        number = next(number for number, known in enumerate(model.each) if known.inputs == each.inputs)
        with closing(reference):
            entry_sets = reference.make(
                seed,
                rounding=_rounding(manifest),
                feeds=feeds.fitting(number),
                narrow=parse_precision(manifest.get("precision")).narrow_factors,
            )
        sets += [replace(input_set, entry=entry) for input_set in entry_sets]
    return sets


def _compare_on(
    device: RemoteDevice,
    artifact: Path,
    manifest: Mapping[str, Any],
    model: Model,
    sets: Sequence[InputSet],
    folder: Path,
    limits: CompileLimits,
) -> ModelComparison:
    """Run the artifact on a device, and compare its outputs."""
    library = folder / "lib.so"
    fetch_library(artifact, library)
    runner = DeviceRun(
        device,
        kind=device_kind(Target.from_json(manifest["target"])),
        threads=int(manifest["threads"]),
        limits=ChildLimits(),
        folder=folder,
    )
    with closing(runner):
        runner.use_parts(fetch_parts(artifact, folder))
        names = [spec.name for spec in model.outputs]
        return compare_model(runner, library, names, sets, limits)


def _entries(manifest: Mapping[str, Any], model: Model) -> dict[str, Model]:
    """Return the model in each set of shapes that the artifact was compiled for, by the library's function.

    Raises:
        InvalidInputError: other-model, if the model was not imported in these shapes.
    """
    listed = manifest.get("specialisations") or [{"entry": entry_name(0), "inputs": manifest["inputs"]}]
    known = {tuple(spec.shape for spec in each.inputs): each for each in model.each}
    entries = {}
    for item in listed:
        shapes = tuple(tuple(spec["shape"]) for spec in item["inputs"])
        if shapes not in known:
            raise InvalidInputError(
                f"the artifact runs the shapes {[list(shape) for shape in shapes]}, in which the model was not imported",
                code="other-model",
            )
        entries[str(item["entry"])] = known[shapes]
    return entries


def _rounding(manifest: Mapping[str, Any]) -> str:
    """Return the rounding that outputs are compared by: the manifest cannot allow more than its precision does."""
    # Artifacts of older releases, which had one precision, name none.
    allowed = parse_precision(manifest.get("precision")).rounding
    strict = Precision.AS_MODEL.rounding
    return strict if manifest.get("tolerance") == strict else allowed
