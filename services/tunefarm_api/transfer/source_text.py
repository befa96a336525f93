"""Send a kernel's source, always as plain text."""

from __future__ import annotations

from fastapi import Response
from fastapi.responses import PlainTextResponse

from tunefarm_app.records.kernel_sources import Progress, SourceView, source_of
from tunefarm_app.runtime.composition import Services
from tunefarm_tuning.compiler.kernel_source import SourceText
from tunefarm_tuning.core.errors import ConflictError

_SUFFIX = {"schedule": "py", "llvm": "ll", "asm": "s", "cuda": "cu"}
_COMMENT = {"llvm": ";", "cuda": "//"}


def source_response(
    services: Services, job_id: str, position: int, kind: str, *, if_none_match: str | None, attached: bool
) -> Response:
    """Return one of the source's texts; a source that does not exist yet is requested.

    Raises:
        NotFoundError: ``no-such-source``.
        ConflictError: ``no-kernel``, ``source-being-made``, ``source-not-made``.
    """
    view = source_of(services, job_id, position, ask=True)
    if view.source is None:
        raise why_not(view)
    source = view.source.find(kind)
    etag = f'"{view.sha256}-{kind}"'
    name = f"{job_id}-kernel-{position}.{_SUFFIX[kind]}"
    headers = {
        "ETag": etag,
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f'{"attachment" if attached else "inline"}; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
    }
    if if_none_match is not None and etag in [tag.strip() for tag in if_none_match.split(",")]:
        return Response(status_code=304, headers=headers)
    return PlainTextResponse(whole_text(source), headers=headers)


def whole_text(source: SourceText) -> str:
    """Return the text, with a last line that says how much is missing, if any is."""
    if not source.is_cut:
        return source.text
    mark = _COMMENT.get(source.kind, "#")
    return f"{source.text}{mark} … truncated: the whole source has {source.size_bytes:,} bytes\n"


def why_not(view: SourceView) -> ConflictError:
    """Return the error for a source that does not exist."""
    if view.progress is Progress.NO_KERNEL:
        why = "has worked yet" if view.is_tried else "was tried, so it has no source of its own"
        return ConflictError(f"no config of this kernel {why}", code="no-kernel")
    if view.progress is Progress.FAILED:
        error = view.error or {}
        return ConflictError(
            f"its source cannot be generated: {error.get('message', 'the reason is unknown')}",
            code="source-not-made",
            reason=str(error.get("code", "internal")),
        )
    waits = "no worker has taken it yet" if view.waiting else "it takes some seconds"
    return ConflictError(f"its source is being generated: {waits}, ask again", code="source-being-made")
