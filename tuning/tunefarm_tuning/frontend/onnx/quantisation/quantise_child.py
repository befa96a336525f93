"""Child process: quantise a network with ONNX Runtime's quantiser, on sample sets in files."""

from __future__ import annotations

import tempfile
from math import prod
from pathlib import Path
from typing import Any

from tunefarm_convert import FileFormat, file_format
from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.binding import real_inputs
from tunefarm_tuning.frontend.onnx.bound_values import bound_arrays
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes, read_model
from tunefarm_tuning.frontend.onnx.quantisation.quantiser import Quantiser, multiplies_bytes
from tunefarm_tuning.frontend.onnx.quantisation.search import quantise_within
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.quantisation import Quantisation

_FLOAT_BYTES = 4


def quantise(params: dict[str, Any]) -> dict[str, Any]:
    """Quantise a file that has passed the checks, and write it as an ONNX file.

    Args:
        params: ``path``, ``binding`` (of the first set of shapes), ``feeds`` (files of arrays, in the order of the inputs),
            ``max_error``, ``several`` (whether it has several sets of shapes), ``folder`` for files on the way, ``to``.

    Returns:
        `Quantisation` as JSON.

    Raises:
        InvalidModelError: already-quantised, or a code of `quantise_within`.
    """
    binding, folder = Binding.from_json(params["binding"]), Path(params["folder"])
    tempfile.tempdir = str(folder)  # of ONNX Runtime's quantiser
    if params["several"] and file_format(Path(params["path"]).read_bytes()) is FileFormat.TFLITE:
        raise InvalidModelError(
            "a TFLite file for several sets of shapes cannot be quantised, as its ONNX form has one: import it with one set of shapes",
            code="quantise-failed",
        )
    model = read_model(params["path"], binding.shapes)
    if any(
        node.op_type in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
        for node in model.graph.node
    ):
        raise InvalidModelError(
            "the network is quantised already: leave the precision out, its products are computed in int8 anyway",
            code="already-quantised",
        )
    values = bound_arrays(model.graph, binding)
    names = [value.name for value in real_inputs(model.graph) if value.name not in values]
    feeds = [dict(zip(names, load_arrays(feed), strict=True)) | values for feed in params["feeds"]]
    quantiser = Quantiser(model, feeds, folder)
    form = quantise_within(quantiser, feeds, params["max_error"])
    Path(params["to"]).write_bytes(onnx_bytes(form.model))
    sizes = {tensor.name: prod(tensor.dims) for tensor in quantiser.prepared.graph.initializer}
    candidates = [node for node in quantiser.products if multiplies_bytes(node)]
    products = [node for node in candidates if node.name not in form.kept]
    elements = sum(sizes[name] for name in {node.input[1] for node in products})
    return Quantisation(
        products=len(products),
        kept=len(candidates) - len(products),
        between=form.between,
        bytes_before=_FLOAT_BYTES * elements,
        bytes_after=elements,
        sets=len(feeds),
        max_error=params["max_error"],
        outputs=form.outputs,
    ).to_json()


HANDLERS = {"quantise": quantise}
