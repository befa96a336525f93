"""Upload large files in parts; an interrupted upload resumes (tus 1.0)."""

from __future__ import annotations

import os
import random
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from tunefarm.client.errors import ClientError, InvalidRequestError, ProtocolError, UnavailableError
from tunefarm.client.http.links import CHUNK_BYTES
from tunefarm.client.http.paging import get_page
from tunefarm.client.http.streams import ByteProgress
from tunefarm.client.http.transport import Transport, segment
from tunefarm.client.results.models import Problem
from tunefarm.client.results.reading import Result
from tunefarm_text.bindings import value_texts
from tunefarm_text.shape_text import ShapeTextError, read_shape, shape_line, split_name

PARTED_BYTES = 4 << 20
"""Larger files are sent in parts; repeating a smaller upload takes little time."""

PART_BYTES = 64 << 20
"""Size of a part: small, because a proxy may hold a part back until it is complete."""

_LOOK_AGAIN = frozenset({"upload-locked", "upload-offset", "upload-not-found"})
_LOCKED_WAIT_SEC = 2.0
_LOCKED_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Upload(Result):
    """An upload in parts, as the server describes it."""

    id: str
    name: str = ""
    state: str = ""
    sha256: str | None = None
    shapes: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    offset_bytes: int | None = None
    model_id: str | None = None
    error: Problem | None = None


class PartedUpload:
    """The upload of a file. Only the server knows its offset, so that an interruption cannot lose it here.

    Args:
        transport: The way to the server.
        name: Name of the model.
        shapes: Shapes of inputs with dynamic dimensions, as the server takes them (``x=1,3``).
        values: Values of inputs that become constants, as the server takes them (``sr=16000``).
        on_progress: Called with the bytes sent and the bytes in all.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        name: str,
        shapes: Sequence[str],
        values: Sequence[str] = (),
        on_progress: ByteProgress | None,
    ) -> None:
        self._transport = transport
        self._name, self._shapes, self._on_progress = name, list(shapes), on_progress
        self._values = list(values)
        self._id = ""
        self._offset = 0
        self._total = 0
        self._is_resumed = False

    async def send(self, path: Path) -> Any | None:
        """Send the file; return the model's JSON, or None if this server or key allows no uploads in parts.

        A file that this key began to send before, and that is the same to the byte, is gone on with.

        Raises:
            InvalidRequestError: If the server refuses the file.
            UnavailableError: If the upload did not advance in as many attempts as the client makes; received bytes are kept.
        """
        link = self._transport.link
        with await link.run(lambda: path.open("rb")) as source:
            self._total = os.fstat(source.fileno()).st_size
            digest = await link.run(_digest, source)
            metadata = {
                "filename": self._name,
                "shapes": "\n".join(self._shapes),
                "values": "\n".join(self._values),
                "sha256": digest,
            }
            try:
                if not await self._find(digest):
                    await self._begin(metadata)
            except ClientError as error:
                if error.code in (
                    "no-such-route",
                    "forbidden",
                ):  # an older server, or a key that may not list uploads
                    return None
                raise
            model_id = await self._send_all(source, metadata)
        return await self._transport.get(f"models/{segment(model_id)}")

    async def _send_all(self, source: IO[bytes], metadata: Mapping[str, str]) -> str:
        retry, link = self._transport.retry, self._transport.link
        failures = locked = 0
        lost: ClientError | None = None
        while True:
            before = self._offset
            try:
                if lost is not None:
                    await self._look_again(lost, metadata)
                while self._offset < self._total:
                    await self._send_part(source)
                return await self._model_id()
            except ClientError as error:
                if not isinstance(error, UnavailableError) and error.code not in _LOOK_AGAIN:
                    raise
                lost = error
            if lost.code == "upload-locked":  # usually by our own broken request, which the server soon ends
                locked += 1
                if locked >= _LOCKED_TRIES:
                    raise lost
                await link.sleep(_LOCKED_WAIT_SEC)
                continue
            failures = 1 if self._offset > before else failures + 1
            if failures >= retry.attempts:
                raise lost
            await link.sleep(retry.wait_sec(failures, None, random.random))

    async def _look_again(self, lost: ClientError, metadata: Mapping[str, str]) -> None:
        if lost.code == "upload-not-found" or (lost.code == "upload-locked" and self._is_resumed):
            # It was deleted, or another process is sending the same file and would conflict.
            await self._begin(metadata)
            return
        upload = _Upload.read(await self._transport.get(f"uploads/{segment(self._id)}"))
        if upload.state == "failed":
            error = upload.error or Problem(code="upload-failed", message="the server refused the file")
            raise InvalidRequestError(error.message, code=error.code, fields=error.fields)
        if upload.offset_bytes is None:
            raise ProtocolError("the server did not return the upload's offset", code="bad-answer")
        self._offset = upload.offset_bytes

    async def _send_part(self, source: IO[bytes]) -> None:
        start, end = self._offset, min(self._offset + PART_BYTES, self._total)
        answer = await self._transport.send_part(
            f"uploads/{segment(self._id)}", source, start, end, self._total, self._on_progress
        )
        offset = answer.get("Upload-Offset", "")
        if not offset.isdecimal() or int(offset) <= start:
            raise ProtocolError("the server did not return the upload's offset", code="bad-answer")
        self._offset = int(offset)

    async def _find(self, digest: str) -> bool:
        """Find an earlier unfinished upload of the same file; return whether there is one."""
        uploads = await get_page(self._transport, "uploads", {}, _Upload.read)
        for upload in uploads:
            shapes = [shape_line(key, shape) for key, shape in upload.shapes.items()]
            is_same = (upload.sha256, upload.name, sorted(shapes), sorted(value_texts(upload.values))) == (
                digest,
                self._name,
                sorted(map(_canonical, self._shapes)),
                sorted(self._values),
            )
            if upload.state == "open" and is_same and upload.offset_bytes is not None:
                self._id, self._offset, self._is_resumed = upload.id, upload.offset_bytes, True
                return True
        return False

    async def _begin(self, metadata: Mapping[str, str]) -> None:
        pairs = [f"{key} {b64encode(text.encode()).decode()}" for key, text in metadata.items() if text]
        headers = {"Upload-Length": str(self._total), "Upload-Metadata": ",".join(pairs)}
        # If it is sent twice, an empty upload stays until it expires.
        begun = await self._transport.post("uploads", headers=headers, repeatable=True)
        self._id, self._offset, self._is_resumed = _Upload.read(begun).id, 0, False

    async def _model_id(self) -> str:
        upload = _Upload.read(await self._transport.get(f"uploads/{segment(self._id)}"))
        if upload.model_id is None:
            raise ProtocolError("the server did not return the upload's model", code="bad-answer")
        return upload.model_id


def _canonical(line: str) -> str:
    """Return a line as the server returns it."""
    try:
        name, text = split_name(line)
        return f"{name}={read_shape(text)}"
    except ShapeTextError:  # the server will refuse it
        return line


def _digest(source: IO[bytes]) -> str:
    digest = sha256()
    source.seek(0)
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
