"""Send files; every refusal is a problem document."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import BinaryIO

from fastapi.responses import FileResponse
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from tunefarm_api.errors.problems import problem_response

_CODES = {400: "bad-range", 416: "range-not-satisfiable"}


class Download(FileResponse):
    """A file, or the parts that `Range` asks for. A bad range is refused with a problem document, not with plain text.

    Args:
        file: An open file with a descriptor, which is closed when it has been sent. A path could name another file by then.
        media_type: What it is.
        filename: What it is to be called where it is saved.
        headers: Further headers.
    """

    def __init__(self, file: BinaryIO, *, media_type: str, filename: str, headers: Mapping[str, str]) -> None:
        super().__init__(
            f"/proc/self/fd/{file.fileno()}",
            media_type=media_type,
            filename=filename,
            headers=headers,
            stat_result=os.fstat(file.fileno()),
        )
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = False

        async def send_or_refuse(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] in _CODES:
                refused = True
                size = Headers(raw=message["headers"]).get("content-range")
                await problem_response(
                    scope["path"],
                    str(scope.get("tunefarm.request_id", "")),
                    status=message["status"],
                    code=_CODES[message["status"]],
                    detail=f"the range is outside the file: its size is {size.rpartition('/')[2]}"
                    if size
                    else "the header Range is not valid: its form is bytes=0-99",
                    headers={} if size is None else {"Content-Range": size},
                )(scope, receive, send)
            elif not refused:
                await send(message)

        with self._file:
            await super().__call__(scope, receive, send_or_refuse)
