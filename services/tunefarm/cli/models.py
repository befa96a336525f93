"""``tunefarm models``: upload, convert, list and delete networks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base import exit_codes
from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.completion import complete_model
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.edge import Exit
from tunefarm.cli.base.model_files import ModelFile, model_files, noting_refusals
from tunefarm.cli.base.options import (
    NO_CHANGE,
    Inputs,
    LabelChanges,
    LabelOptions,
    Limit,
    Shape,
    Tags,
    Text,
    ValueOption,
    parse_shapes,
)
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.references import find_model
from tunefarm.cli.base.upload_file import note_other_name, upload_file
from tunefarm_text import quantities
from tunefarm_text.bindings import short_value
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.workload.binding_text import parse_values

if TYPE_CHECKING:
    from tunefarm.client import Client, Model

app = group("models", "Upload, show and convert models.")

ModelId = Annotated[
    str,
    typer.Argument(
        metavar="MODEL_ID",
        help="The model: its id (mdl_…), the first or last characters of it, or its name (`name@2` for its second version).",
        autocompletion=complete_model,
    ),
]


class ModelSort(StrEnum):
    """The orders of `tunefarm models list`."""

    NEWEST = "newest"
    OLDEST = "oldest"
    NAME = "name"
    STATE = "state"
    SIZE = "size"


@command(app, "list")
def list_models(
    out: Output,
    server: Server,
    state: Annotated[str | None, typer.Option("--state", help="Only models in this state.")] = None,
    tag: Tags = None,
    search: Text = None,
    sort: Annotated[
        ModelSort, typer.Option("--sort", help="The order; `size`: the largest first.")
    ] = ModelSort.NEWEST,
    limit: Limit = 50,
) -> None:
    """List the models, newest first unless --sort says otherwise."""
    order = None if sort is ModelSort.NEWEST else sort.value
    with server.connect() as client:
        matching = client.models.all(state=state, tags=tag or (), text=search, order=order)
        models = out.first(matching, limit)
    out.items(
        models,
        {
            "model": lambda model: model.id,
            "name": lambda model: model.named,
            "state": lambda model: f"{model.state}: {model.error.code}" if model.error else model.state,
            ">size": lambda model: quantities.size(model.size_bytes),
            ">parameters": lambda model: (
                quantities.NONE if model.num_params is None else f"{model.num_params:,}"
            ),
            "inputs": lambda model: ", ".join(f"{t.name} {quantities.shape(t.shape)}" for t in model.inputs),
            "tags": lambda model: ", ".join(model.tags),
            "uploaded": lambda model: quantities.local_time(model.created_at),
        },
    )


@command(app, "change")
def change_model(out: Output, server: Server, model_id: ModelId, labels: LabelChanges) -> None:
    """Change the tags or the note of a model."""
    with server.connect() as client:
        model_id = find_model(client, model_id)
        changes = labels.changes(lambda: client.models.get(model_id).tags)
        if not changes:
            raise InvalidInputError(NO_CHANGE, code="invalid-request")
        model = client.models.change(model_id, **changes)
    _show(out, model)


@command(app, "show")
def show_model(out: Output, server: Server, model_id: ModelId) -> None:
    """Show one model: its inputs, outputs and operators."""
    with server.connect() as client:
        model_id = find_model(client, model_id)
        model = client.models.get(model_id)
    _show(out, model)


@command(app, "upload")
def upload_models(
    out: Output,
    server: Server,
    files: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="ONNX or TFLite files.")],
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the model, if you upload one; the file's name by default."),
    ] = None,
    shape: Shape = None,
    value: ValueOption = None,
    inputs: Inputs = None,
    *,
    labels: LabelOptions,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the model is imported.")] = True,
) -> None:
    """Upload ONNX or TFLite files. The server imports each one and reports its errors.

    If you upload several files and the server refuses some of them, the others are uploaded, and the exit code is 1. To give a shape, a
    value or samples for one file, write its name first: `--shape a.onnx:x=1,3,224,224`.

    With --inputs, it also uploads samples, which the form on the model's page offers. Samples that no job uses are deleted after a day.
    """
    named = model_files(files, shapes=shape, values=value, inputs=inputs, name=name)
    with server.connect() as client:
        if len(named) == 1:
            _show(out, _upload(out, client, named[0], name, labels, wait=wait))
            return
        models: list[Model] = []
        refused: list[dict[str, str]] = []
        for file in named:
            with noting_refusals(out, file.path, refused, of_several=True):
                model = _upload(out, client, file, name, labels, wait=wait)
                models.append(model)
                if not out.json:
                    out.text(f"{model.id}  {model.named}  {model.state_text}  {file.path}")
    if out.json:
        out.data({"models": [model.raw for model in models], "refused": refused})
    if refused:
        raise Exit(exit_codes.FAILED)


def _upload(
    out: Output, client: Client, file: ModelFile, name: str | None, labels: LabelOptions, *, wait: bool
) -> Model:
    """Upload a file with its samples, and label the model; with `wait`, or if it has samples, return it once it is imported."""
    from tunefarm.cli.progress_view import view
    from tunefarm.live.board import Board, Phase
    from tunefarm.live.waiting import LiveView

    board = Board()
    with view(out, board, phases=(Phase.UPLOAD, Phase.IMPORT)) as progress:
        live = LiveView(board, progress.update)
        with upload_file(out, file.path) as path:
            model = client.models.upload(
                path, name=name, shapes=file.shapes, values=file.values, on_progress=live.on_upload
            )
        note_other_name(out, model, name)
        if labels.tag or labels.note:
            tags = [*model.tags, *(labels.tag or ())]
            model = client.models.change(model.id, tags=tags, note=labels.note or model.note)
        if wait or file.samples:
            model = client.models.wait(model.id, on_progress=live.on_model)
        client.samples.upload_all(model.id, file.samples)
    return model


@command(app, "bind")
def bind_model(
    out: Output,
    server: Server,
    model_id: ModelId,
    shape: Shape = None,
    value: ValueOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the model is imported.")] = True,
) -> None:
    """Import an uploaded model again, with other shapes or values of its inputs, as a new model. Nothing is uploaded again.

    If the import of the former model failed because they were missing, the new one replaces it.
    """
    shapes, values = parse_shapes(shape), parse_values(value or ())
    with server.connect() as client:
        model = client.models.bind(find_model(client, model_id), shapes=shapes, values=values)
        if wait:
            model = client.models.wait(model.id)
    _show(out, model)


@command(app, "convert")
def convert_model(
    out: Output,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A torch.export program (.pt2), a StableHLO program (.mlir, .mlirbc, or the output of JAX's "
            "export), a .tflite file, or an .onnx file with weights in files beside it.",
        ),
    ],
    to: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="Path of the ONNX file.")],
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Load a .pt2 file. It can run any code of its author with your rights."),
    ] = False,
) -> None:
    """Convert a torch.export, StableHLO or TFLite program to an ONNX file on this machine, and compare the two.

    An ONNX model whose weights are in other files becomes one file that holds them.

    torch.export programs need torch and onnxscript, StableHLO programs need jaxlib (tunefarm[stablehlo]). TFLite files
    are compared only if ai-edge-litert is installed; they can also be uploaded and tuned without conversion.
    """
    from tunefarm_convert import FileFormat, file_format_of
    from tunefarm_tuning.core.errors import InvalidModelError
    from tunefarm_tuning.frontend.conversion import Conversion, convert_stablehlo, convert_tflite
    from tunefarm_tuning.frontend.single_file import keeps_weights_outside, write_single_file
    from tunefarm_tuning.frontend.torch import import_torch

    source = file_format_of(file)
    if source is FileFormat.ONNX and keeps_weights_outside(file):
        write_single_file(file, to)
        size_bytes = to.stat().st_size
        out.result(
            {"path": str(to), "size_bytes": size_bytes},
            f"wrote {to}: the network with its weights, {size_bytes} bytes",
        )
        return
    if source is FileFormat.TFLITE:
        conversion = convert_tflite(file, to)
    elif source is FileFormat.STABLEHLO:
        conversion = convert_stablehlo(file, to)
    elif source is FileFormat.TORCH_EXPORT:
        model = import_torch(file, to, trust=trust)
        conversion = Conversion(model=model, compared="as PyTorch computes them")
    else:
        raise InvalidModelError(
            f"{file} cannot be converted: it is not a torch.export (.pt2), StableHLO (.mlir, .mlirbc, "
            ".jax_export) or TFLite (.tflite) file. Is it complete and unpacked?",
            code="not-convertible",
        )
    model, compared = conversion.model, conversion.compared
    if conversion.warning:
        out.warning(conversion.warning)
    out.result(
        {"path": str(to), "compared": compared, **model.to_json()},
        f"wrote {to}: {len(model.inputs)} inputs, {len(model.outputs)} outputs, {compared}",
    )


@command(app, "tasks")
def list_tasks(out: Output, server: Server, model_id: ModelId) -> None:
    """List the tunable kernels of a model."""
    with server.connect() as client:
        model_id = find_model(client, model_id)
        tasks = client.models.tasks(model_id)
    out.items(
        tasks,
        {
            "for": lambda task: task.pipeline,
            ">#": lambda task: task.position,
            "kernel": lambda task: task.name,
            ">calls": lambda task: task.weight,
            ">flop per call": lambda task: quantities.flops(task.flops),
            "arguments": lambda task: ", ".join(quantities.shape(tensor.shape) for tensor in task.args),
            "workload": lambda task: task.workload_key[:16],
        },
    )


@command(app, "samples")
def list_samples(out: Output, server: Server, model_id: ModelId) -> None:
    """List the samples of a model, newest first."""
    with server.connect() as client:
        model_id = find_model(client, model_id)
        samples = client.samples.list(model_id)
    out.items(
        samples,
        {
            "samples": lambda samples: samples.id,
            "name": lambda samples: samples.name,
            "state": lambda samples: samples.state,
            ">sets": lambda samples: quantities.NONE if samples.sets is None else str(samples.sets),
            ">size": lambda samples: quantities.size(samples.size_bytes),
            "uploaded": lambda samples: quantities.local_time(samples.created_at),
            "error": lambda samples: samples.error.message if samples.error else "",
        },
    )


@command(app, "delete-samples")
def delete_samples(
    out: Output,
    server: Server,
    model_id: ModelId,
    samples_id: Annotated[
        str,
        typer.Argument(
            metavar="SAMPLES_ID", help="The samples: their id (smp_…), or the first or last characters of it."
        ),
    ],
) -> None:
    """Delete samples of a model from the server. Jobs that used them stay."""
    with server.connect() as client:
        model_id = find_model(client, model_id)
        samples_id = client.samples.get(model_id, samples_id).id
        client.samples.delete(model_id, samples_id)
    out.result({"id": samples_id, "state": "deleted"}, f"{samples_id} are deleted")


@command(app, "delete")
def delete_model(out: Output, server: Server, model_id: ModelId) -> None:
    """Delete a model, its file and its samples. Its records and finished artifacts stay."""
    with server.connect() as client:
        model_id = find_model(client, model_id)
        client.models.delete(model_id)
    out.result({"id": model_id, "state": "deleted"}, f"{model_id} is deleted")


def _show(out: Output, model: Model) -> None:
    if out.json:
        out.data(model.raw)
        return
    out.text(f"{model.id}  {model.named}  {model.state_text}", style="bold")
    out.text(
        f"{quantities.size(model.size_bytes)}, sha256 {model.sha256}, uploaded {quantities.local_time(model.created_at)}"
    )
    if model.tags:
        out.text(f"tags: {', '.join(model.tags)}")
    for line in model.note.splitlines():
        out.text(line)
    for name, value in model.values.items():
        out.text(f"input {name} is bound to {short_value(value)}")
    if model.error:
        out.text(f"{model.error.code}: {model.error.message}", style="red")
    if model.state != "ready":
        return
    out.text(f"opset {model.opset}, {model.num_params or 0:,} parameters")
    out.text("operators: " + ", ".join(f"{count} {name}" for name, count in model.operators))
    for part in model.parts:
        operators = ", ".join(f"{count} {name}" for name, count in part.operators)
        reasons = "; ".join(f"node {why.node} ({why.operator}) {why.reason}" for why in part.reasons)
        out.text(f"ONNX Runtime runs {operators}: {reasons}")
    rows = [("input", t) for t in model.inputs] + [("output", t) for t in model.outputs]
    out.table(
        ("", "name", "shape", "dtype"),
        ((kind, t.name, quantities.shape(t.shape), t.dtype) for kind, t in rows),
    )
