"""``client.models``: upload, list and delete networks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from tunefarm.client.errors import ModelFailedError
from tunefarm.client.filters import PAGE_OF_ALL, ModelFilters, filter_query, takes_filters
from tunefarm.client.http.blocking import Blocking, blocking, blocking_each
from tunefarm.client.http.paging import Page, get_all, get_page, walk
from tunefarm.client.http.streams import ByteProgress
from tunefarm.client.http.transport import Query, Resource, segment
from tunefarm.client.http.waiting import wait_until
from tunefarm.client.job_terms import texts
from tunefarm.client.results.models import Model, ModelTask
from tunefarm.client.uploads import PARTED_BYTES, PartedUpload
from tunefarm_text.bindings import value_texts
from tunefarm_text.shape_text import shape_line

Shapes = Mapping[str, Sequence[int | str] | str]
"""By input name: sizes, or a text like ``"1..8,3,160|320"`` (`tunefarm_text.shape_text`)."""
Values = Mapping[str, Any]
"""By input name: a number, nested sequences of numbers, or an array."""


class AsyncModels(Resource):
    """The server's models."""

    async def upload(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        shapes: Shapes | None = None,
        values: Values | None = None,
        on_progress: ByteProgress | None = None,
    ) -> Model:
        """Upload an ONNX or TFLite file; the server then imports it (see `wait`).

        The file is streamed, never held in memory. A file of more than 4 MB is sent in parts: after an interruption or
        a restart of the server, only the remainder is sent, also by a later call. If the server has the same file with
        the same shapes and values already, that model is returned.

        Args:
            path: The file.
            name: Name of the model; the file's name by default.
            shapes: Shapes of inputs with dynamic dimensions (``{"x": (1, 3, 224, 224)}``); several sizes of a dimension make an
                artifact for all of them (``{"x": "1..8,3,160|320"}``).
            values: Values of inputs that decide the network and become constants (``{"sr": 16000}``): numbers, nested
                sequences of them, or arrays of up to 4,096 elements.
            on_progress: Called with the bytes sent and the bytes in all; after an interruption, with the offset to
                continue from.

        Raises:
            InvalidRequestError: If the server refuses the file (too large, empty, not a model), or a value is none.
            UnavailableError: If the server does not answer for too long. The sent part is kept for a day.
        """
        path = Path(path)
        # A file's name can contain any bytes.
        called = (name if name is not None else path.stem).encode("utf-8", "replace").decode()
        shape_texts = [shape_line(key, shape) for key, shape in (shapes or {}).items()]
        bound = value_texts(values or {})
        if (await self._transport.link.run(path.stat)).st_size > PARTED_BYTES:
            parted = PartedUpload(
                self._transport, name=called, shapes=shape_texts, values=bound, on_progress=on_progress
            )
            model = await parted.send(path)
            if model is not None:
                return Model.read(model)
        query: Query = {"name": called, "shape": shape_texts, "value": bound}
        return Model.read(await self._transport.upload("models", query, path, on_progress))

    async def bind(
        self, model_id: str, *, shapes: Shapes | None = None, values: Values | None = None
    ) -> Model:
        """Import a model's file with other shapes or values of its inputs, without another upload (see `upload`, `wait`).

        That is another model. One whose import failed because they were missing is deleted: the new one takes its place.

        Raises:
            NotFoundError: If there is no such model, or its file was not kept since its import failed for another reason.
            InvalidRequestError: If a shape or value is none.
        """
        body = {
            "shapes": [shape_line(key, shape) for key, shape in (shapes or {}).items()],
            "values": value_texts(values or {}),
        }
        return Model.read(await self._transport.post(f"models/{segment(model_id)}/bind", body))

    async def get(self, model_id: str) -> Model:
        """Return the current state of a model.

        Raises:
            NotFoundError: If there is no such model.
        """
        return Model.read(await self._transport.get(f"models/{segment(model_id)}"))

    @takes_filters(ModelFilters)
    async def list(
        self, *, limit: int = 100, cursor: str | None = None, **filters: Unpack[ModelFilters]
    ) -> Page[Model]:
        """Return a page of models, newest first unless another order is given.

        Args:
            **filters
            limit: Maximum number of items, up to 500.
            cursor: `Page.next_cursor` of the previous page.
        """
        query = {**filter_query(filters, ModelFilters), "limit": limit, "cursor": cursor}
        return await get_page(self._transport, "models", query, Model.read)

    @takes_filters(ModelFilters)
    def all(self, **filters: Unpack[ModelFilters]) -> AsyncIterator[Model]:
        """Yield every model, page by page, newest first unless another order is given.

        Args:
            **filters
        """
        query = {**filter_query(filters, ModelFilters), "limit": PAGE_OF_ALL}
        return walk(self._transport, "models", query, Model.read)

    async def change(
        self, model_id: str, *, tags: Sequence[str] | None = None, note: str | None = None
    ) -> Model:
        """Change the tags or the note of a model; None leaves them.

        Args:
            model_id: The model.
            tags: All its tags from now on.
            note: Its note from now on; empty for none.

        Raises:
            NotFoundError: If there is no such model.
            InvalidRequestError: If a tag is none, or the note too long.
        """
        changes = {"tags": None if tags is None else texts(tags), "note": note}
        body = {name: value for name, value in changes.items() if value is not None}
        return Model.read(await self._transport.patch(f"models/{segment(model_id)}", body))

    async def tasks(self, model_id: str) -> tuple[ModelTask, ...]:
        """Return the tunable kernels of a model; none before it is imported."""
        return await get_all(self._transport, f"models/{segment(model_id)}/tasks", {}, ModelTask.read)

    async def delete(self, model_id: str) -> None:
        """Delete a model, its file and its samples. Its records and finished artifacts stay."""
        await self._transport.delete(f"models/{segment(model_id)}")

    async def wait(
        self,
        model_id: str,
        *,
        timeout_sec: float | None = None,
        poll_sec: float = 0.5,
        on_progress: Callable[[Model], None] | None = None,
    ) -> Model:
        """Wait until the model is imported.

        Args:
            model_id: The model.
            timeout_sec: Longest wait; None for no limit.
            poll_sec: Seconds between two requests at most; at first they are shorter.
            on_progress: Called with the model after each request.

        Raises:
            ModelFailedError: If the import fails; the code says why.
            WaitTimeoutError: If it takes longer than `timeout_sec`.
        """
        model = await wait_until(
            self._transport.link,
            lambda: self.get(model_id),
            lambda model: model.state != "importing",
            on_progress=on_progress,
            timeout_sec=timeout_sec,
            poll_sec=poll_sec,
            too_long=f"model {model_id} is not imported",
        )
        if model.state == "failed":
            error = model.error
            failed = ModelFailedError(
                error.message if error else "the model could not be imported",
                code=error.code if error else "invalid-model",
                fields={"model_id": model.id, **(error.fields if error else {})},
            )
            if proposed := _proposed(failed.fields.get("proposal")):
                failed.add_note(f"In Python: {proposed}")
            raise failed
        return model


def _proposed(binding: object) -> str:
    """Return a proposed binding as keyword arguments, ``"shapes={'x': (1, 3)}"``; empty if there is none."""
    if not isinstance(binding, dict):
        return ""
    shapes, values = binding.get("shapes"), binding.get("values")
    given: dict[str, object] = {}
    if isinstance(shapes, dict) and shapes:
        given["shapes"] = {
            name: tuple(sizes) if isinstance(sizes, list) else sizes for name, sizes in shapes.items()
        }
    if isinstance(values, dict) and values:
        given["values"] = values
    return ", ".join(f"{name}={value!r}" for name, value in given.items())[:1000]


class Models(Blocking[AsyncModels]):
    """The server's models."""

    upload = blocking(AsyncModels.upload)
    bind = blocking(AsyncModels.bind)
    get = blocking(AsyncModels.get)
    list = blocking(AsyncModels.list)
    all = blocking_each(AsyncModels.all)
    change = blocking(AsyncModels.change)
    tasks = blocking(AsyncModels.tasks)
    delete = blocking(AsyncModels.delete)
    wait = blocking(AsyncModels.wait)
