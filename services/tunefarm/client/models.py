"""``client.models``: upload networks and look at them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tunefarm.client.errors import ModelFailedError, WaitTimeoutError
from tunefarm.client.paging import walk
from tunefarm.client.results import Model, ModelTask, Page
from tunefarm.client.transport import ByteProgress, Query, Transport, segment

Shapes = Mapping[str, Sequence[int]]


class Models:
    """The server's models."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def upload(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        shapes: Shapes | None = None,
        on_progress: ByteProgress | None = None,
    ) -> Model:
        """Upload an ONNX file; the server then imports it (see `wait`).

        The file is streamed, never held in memory. A file that the server has already, with the same shapes, is not
        stored twice: the model that is there comes back.

        Args:
            path: The file.
            name: What to call it; the file's name where it is left out.
            shapes: Shapes of inputs with dynamic dimensions (``{"x": (1, 3, 224, 224)}``).
            on_progress: Called with the bytes sent and the bytes in all.

        Raises:
            InvalidRequestError: If the server refuses the file (too large, empty, not a model).
        """
        path = Path(path)
        query: Query = {
            # The name of a file can be any bytes.
            "name": (name if name is not None else path.stem).encode("utf-8", "replace").decode(),
            "shape": [f"{key}={','.join(map(str, dims))}" for key, dims in (shapes or {}).items()],
        }
        return Model.read(self._transport.upload("models", query, path, on_progress))

    def get(self, model_id: str) -> Model:
        return Model.read(self._transport.get(f"models/{segment(model_id)}"))

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[Model]:
        return Page.read(self._transport.get("models", {"limit": limit, "cursor": cursor}), Model.read)

    def all(self) -> Iterator[Model]:
        """Yield every model, page by page."""
        return walk(lambda cursor: self.list(limit=500, cursor=cursor))

    def tasks(self, model_id: str) -> tuple[ModelTask, ...]:
        """Return the kernels of a model that can be tuned; none before it was imported."""
        return tuple(
            walk(
                lambda cursor: Page.read(
                    self._transport.get(f"models/{segment(model_id)}/tasks", {"cursor": cursor}),
                    ModelTask.read,
                )
            )
        )

    def delete(self, model_id: str) -> None:
        """Delete a model and its file. Its records and finished artifacts stay."""
        self._transport.delete(f"models/{segment(model_id)}")

    def wait(
        self,
        model_id: str,
        *,
        timeout_sec: float | None = None,
        poll_sec: float = 0.5,
        on_progress: Callable[[Model], None] | None = None,
    ) -> Model:
        """Wait until the model is imported.

        Raises:
            ModelFailedError: If it cannot be; the code says why.
            WaitTimeoutError: If it takes longer than `timeout_sec`.
        """
        deadline = None if timeout_sec is None else time.monotonic() + timeout_sec
        while True:
            model = self.get(model_id)
            if on_progress is not None:
                on_progress(model)
            if model.state == "failed":
                error = model.error
                raise ModelFailedError(
                    error.message if error else "the model could not be imported",
                    code=error.code if error else "invalid-model",
                    fields={"model_id": model.id, **(error.fields if error else {})},
                )
            if model.state != "importing":
                return model
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeoutError(
                    f"model {model_id} is not imported after {timeout_sec:g} s", code="wait-timeout"
                )
            time.sleep(poll_sec)
