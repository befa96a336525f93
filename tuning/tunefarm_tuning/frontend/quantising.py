"""`quantise_model`: quantise a float network to 8 bits, as far as the accuracy asked for allows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.output_file import output_file
from tunefarm_tuning.process.model_child import ImportLimits, call_model_child
from tunefarm_tuning.process.sandbox import Access
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.reference.samples import MAX_SAMPLE_BYTES, sample_paths, write_all_feeds
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.quantisation import (
    DEFAULT_MAX_ERROR,
    Quantisation,
    check_max_error,
    samples_needed,
)

_CHILD = "tunefarm_tuning.frontend.onnx.quantisation.quantise_child"
MAX_CALIBRATION_SETS = 64
"""So many sample sets, spread evenly over the files, give the ranges of activations."""


def quantise_model(
    model: Model,
    samples: Path | str | Sequence[Path | str],
    path: Path | str,
    *,
    max_error: float = DEFAULT_MAX_ERROR,
    limits: ImportLimits | None = None,
    limit_bytes: int = MAX_SAMPLE_BYTES,
    cancellation: Cancellation | None = None,
) -> Model:
    """Quantise the convolutions and matrix products of a float network, and write it as an ONNX file.

    ONNX Runtime's static quantiser does it: QDQ form, unsigned 8-bit activations whose ranges are those on the samples, signed 8-bit
    weights with a scale per channel. The outputs on the samples are then compared with the float network's; where they are
    too far off, results between products stay float, and then the products that move the outputs most.

    Args:
        model: From `import_model`.
        samples: As for `compile`: real inputs.
        path: The ONNX file to write. An existing one is replaced only on success.
        max_error: Largest mean error of an output, as a share of its root mean square (0.05: 5 %); of outputs of integers, the share
            of elements that may differ.
        limits: Memory and time of the child process.
        limit_bytes: Limit of each file of samples.
        cancellation: Ends it from another thread.

    Returns:
        The quantised network, which `extract_tasks` and `compile` take. Its `quantisation` says what was done.

    Raises:
        InvalidInputError: samples-needed, invalid-max-error, cannot-write, or a code of `check_samples`.
        InvalidModelError: If the network is quantised already (already-quantised), has nothing to quantise
            (nothing-to-quantise), or cannot be quantised that accurately (too-inaccurate); if ONNX Runtime's quantiser fails
            (quantise-failed), or takes too long, too much memory, or crashes (quantise-timeout, quantise-memory,
            quantise-crashed); if the network has parts that ONNX Runtime runs (quantise-failed).

    Source: ONNX Runtime 1.31, ``onnxruntime.quantization.quantize_static``.
    """
    check_max_error(max_error)
    files = sample_paths(samples)
    if not files:
        raise samples_needed()
    if model.parts:
        raise InvalidModelError(
            "a network with parts that ONNX Runtime runs cannot be quantised: choose another precision",
            code="quantise-failed",
        )
    limits = limits or ImportLimits()
    with closing(ScratchDir()) as scratch, output_file(Path(path)) as temporary:
        feeds = write_all_feeds(
            files,
            model,
            scratch.path,
            limits=limits,
            limit_bytes=limit_bytes,
            most_sets=max(MAX_CALIBRATION_SETS // len(files), 2),
            cancellation=cancellation,
        )
        written = scratch.path / "quantised.onnx"
        reply = call_model_child(
            "quantise",
            "quantising the model",
            _CHILD,
            "quantise",
            {
                "path": str(model.path.absolute()),
                "binding": model.binding.to_json(),
                "feeds": [str(feed.path) for feed in feeds.feeds],
                "max_error": max_error,
                "several": bool(model.specialisations),
                "folder": str(scratch.path),
                "to": str(written),
            },
            limits,
            Access(reads=(model.path,), writes=(scratch.path,)),
            cancellation=cancellation,
        )
        if (size_bytes := written.stat().st_size) > limits.file_bytes:
            raise InvalidModelError(
                f"the quantised model takes {size_bytes >> 20} MiB; the limit is {limits.file_bytes >> 20} MiB",
                code="quantise-failed",
            )
        data = written.read_bytes()
        temporary.write_bytes(data)
    return replace(
        model,
        path=Path(path),
        sha256=hashlib.sha256(data).hexdigest(),
        quantisation=Quantisation.from_json(reply),
    )
