"""``client.samples``: real inputs of a model, to compare and time its artifact on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tunefarm.client.errors import InvalidRequestError
from tunefarm.client.http.blocking import Blocking, blocking
from tunefarm.client.http.paging import get_all
from tunefarm.client.http.streams import ByteProgress
from tunefarm.client.http.transport import Resource, segment
from tunefarm.client.http.waiting import wait_until
from tunefarm.client.results.models import SampleFile

SamplePaths = Path | str | Sequence[Path | str]


class AsyncSamples(Resource):
    """The samples of the server's models."""

    async def upload(
        self,
        model_id: str,
        path: Path | str,
        *,
        name: str | None = None,
        on_progress: ByteProgress | None = None,
    ) -> SampleFile:
        """Upload a ``.npz`` file of samples for an imported model; a worker then checks it (see `wait`).

        It has an array per input, under the input's name (or ``arr_0``, ``arr_1``, ... in the inputs' order). An array has the
        input's shape, or one more dimension in front, for several sample sets. Samples that no job uses are deleted after a day.

        Args:
            model_id: The model.
            path: The file.
            name: Name of the samples; the file's name by default.
            on_progress: Called with the bytes sent and the bytes in all.

        Raises:
            InvalidRequestError: If the server refuses the file (too large, not a ``.npz`` file).
            ConflictError: If the model is not ready.
        """
        path = Path(path)
        called = (name if name is not None else path.name).encode("utf-8", "replace").decode()
        url = f"models/{segment(model_id)}/samples"
        return SampleFile.read(await self._transport.upload(url, {"name": called}, path, on_progress))

    async def get(self, model_id: str, samples_id: str) -> SampleFile:
        """Return the current state of samples. Their contents cannot be read back.

        Raises:
            NotFoundError: If the model has no such samples.
        """
        return SampleFile.read(await self._transport.get(_path(model_id, samples_id)))

    async def list(self, model_id: str) -> tuple[SampleFile, ...]:
        """Return the samples of a model, newest first."""
        return await get_all(self._transport, f"models/{segment(model_id)}/samples", {}, SampleFile.read)

    async def delete(self, model_id: str, samples_id: str) -> None:
        """Delete samples and their bytes. Jobs that used them stay.

        Raises:
            ConflictError: If a job that uses them is not finished.
        """
        await self._transport.delete(_path(model_id, samples_id))

    async def wait(
        self,
        model_id: str,
        samples_id: str,
        *,
        timeout_sec: float | None = None,
        poll_sec: float = 0.5,
        on_progress: Callable[[SampleFile], None] | None = None,
    ) -> SampleFile:
        """Wait until samples are checked.

        Args:
            model_id: The model.
            samples_id: The samples.
            timeout_sec: Longest wait; None for no limit.
            poll_sec: Seconds between two requests at most; at first they are shorter.
            on_progress: Called with the samples after each request.

        Raises:
            InvalidRequestError: If they do not fit the model; the code says why.
            WaitTimeoutError: If it takes longer than `timeout_sec`.
        """
        samples = await wait_until(
            self._transport.link,
            lambda: self.get(model_id, samples_id),
            lambda samples: samples.state != "checking",
            on_progress=on_progress,
            timeout_sec=timeout_sec,
            poll_sec=poll_sec,
            too_long=f"samples {samples_id} are not checked",
        )
        if samples.state == "failed":
            error = samples.error
            raise InvalidRequestError(
                f"{samples.name}: {error.message}" if error else "the samples were refused",
                code=error.code if error else "samples-refused",
                fields={"samples_id": samples.id, **(error.fields if error else {})},
            )
        return samples

    async def upload_all(self, model_id: str, samples: SamplePaths | None) -> tuple[str, ...]:
        """Upload one or several files, wait until they are checked, and return their ids.

        Raises:
            InvalidRequestError: If a file is refused, or does not fit the model.
        """
        ids = []
        for path in sample_paths(samples):
            uploaded = await self.upload(model_id, path)
            ids.append((await self.wait(model_id, uploaded.id)).id)
        return tuple(ids)


class Samples(Blocking[AsyncSamples]):
    """The samples of the server's models."""

    upload = blocking(AsyncSamples.upload)
    get = blocking(AsyncSamples.get)
    list = blocking(AsyncSamples.list)
    delete = blocking(AsyncSamples.delete)
    wait = blocking(AsyncSamples.wait)
    upload_all = blocking(AsyncSamples.upload_all)


def sample_paths(samples: SamplePaths | None) -> list[Path]:
    """Return the files that a caller names: none, one, or several."""
    if samples is None:
        return []
    return [Path(samples)] if isinstance(samples, Path | str) else [Path(path) for path in samples]


def _path(model_id: str, samples_id: str) -> str:
    return f"models/{segment(model_id)}/samples/{segment(samples_id)}"
