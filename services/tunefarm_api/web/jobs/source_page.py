"""The source of a kernel on its page; each text is loaded when it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.routes.job_details import SourceKind
from tunefarm_api.transfer.source_text import source_response, why_not
from tunefarm_api.web.rendering import page
from tunefarm_app.records.kernel_sources import Progress, source_of
from tunefarm_tuning.compiler.kernel_source import SourceText

router = APIRouter(include_in_schema=False)

MOST_LINES = 2000
MOST_CHARACTERS = 300_000

NAMES: dict[str, tuple[str, str]] = {
    "schedule": ("Scheduled TensorIR", "TVMScript: the loops after scheduling"),
    "llvm": ("LLVM IR", "TVM's output, after LLVM's optimisations"),
    "asm": ("Assembly", "machine code of the device"),
    "cuda": ("CUDA C", "input of CUDA's compiler"),
}

_Position = Annotated[int, Path(ge=0, lt=1 << 31)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """What a page shows of a text.

    Attributes:
        text: Its first lines.
        numbers: Numbers of the shown lines, one per line.
        shown: Number of shown lines.
        lines: Number of all lines.
        size_bytes: Size of the whole text, including what is not kept.
    """

    text: str
    numbers: str
    shown: int
    lines: int
    size_bytes: int
    is_cut: bool


def source_kinds(target_kind: str) -> tuple[str, ...]:
    """Return which texts a kernel for such a target has."""
    return ("schedule", "cuda") if target_kind == "cuda" else ("schedule", "llvm", "asm")


def shown_text(source: SourceText) -> ShownText:
    """Return as much of it as a browser shows without a pause."""
    lines = source.text.split("\n")
    if lines[-1] == "":
        lines.pop()
    first = source.text[:MOST_CHARACTERS].split("\n")[:MOST_LINES]
    if len(first) < len(lines) and len(first) < MOST_LINES and len(first) > 1:
        first.pop()  # it broke off in the middle
    shown = min(len(first), len(lines))
    return ShownText(
        text="\n".join(first[:shown]),
        numbers="\n".join(map(str, range(1, shown + 1))),
        shown=shown,
        lines=len(lines),
        size_bytes=source.size_bytes,
        is_cut=source.is_cut,
    )


@router.get("/jobs/{job_id}/tasks/{position}/source/{kind}", dependencies=[needs("read")])
def source_part(
    job_id: str,
    position: _Position,
    kind: SourceKind,
    request: Request,
    services: ServicesDep,
    waiting: Annotated[bool | None, Query()] = None,
) -> Response:
    """A part of a page. `waiting` is what the page shows of a source that is being made: nothing is sent that it knows."""
    view = source_of(services, job_id, position, ask=True)
    if view.progress is Progress.MAKING and waiting is view.waiting:
        return Response(status_code=204)
    return page(
        "source_part.html",
        request,
        here=f"/jobs/{job_id}/tasks/{position}/source/{kind}",
        kind=kind,
        name=NAMES[kind][0],
        view=view,
        shown=None if view.source is None else shown_text(view.source.find(kind)),
        why_not="" if view.source is not None else why_not(view).message,
    )


@router.get("/jobs/{job_id}/tasks/{position}/source/{kind}/download", dependencies=[needs("read")])
def source_file(
    job_id: str, position: _Position, kind: SourceKind, request: Request, services: ServicesDep
) -> Response:
    """Send a kernel's source as a file."""
    etag = request.headers.get("if-none-match")
    return source_response(services, job_id, position, kind, if_none_match=etag, attached=True)
