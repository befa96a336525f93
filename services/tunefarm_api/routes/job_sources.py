"""``/v1/jobs/{id}/tasks/{position}/source``: the source of a job's winning kernels."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import PlainTextResponse

from tunefarm_api.dependencies import ServicesDep, operation
from tunefarm_api.transfer.source_text import source_response

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])

SourceKind = Literal["schedule", "llvm", "asm", "cuda"]


@router.get(
    "/tasks/{position}/source",
    response_class=PlainTextResponse,
    **operation(
        "read",
        "Get a kernel's source",
        404,
        409,
        answers={
            200: {"description": "Its lines, in UTF-8. No control characters are in them."},
            304: {"description": "It is what `If-None-Match` says."},
        },
    ),
)
def get_kernel_source(
    job_id: str,
    position: Annotated[int, Path(ge=0, lt=1 << 31, description="The task.")],
    services: ServicesDep,
    kind: Annotated[
        SourceKind,
        Query(
            description="`schedule`: the scheduled TensorIR, as TVMScript. Of a CPU `llvm`: LLVM's IR, `asm`: the assembly. "
            "Of a GPU `cuda`: CUDA C."
        ),
    ] = "schedule",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Of the config that won: the one in the artifact, or else the best on record so far.

    A worker makes it when it is first asked for, which takes some seconds: until then the answer is the problem
    `source-being-made`; ask again. It needs no device, and the job may be in any state. `no-kernel`: no candidate has worked
    yet. `source-not-made`: it cannot be made, and the problem's `reason` and `detail` say why: `other-toolchain`, say, where
    the workers' compiler is not the one that the record was measured with.
    """
    return source_response(services, job_id, position, kind, if_none_match=if_none_match, attached=False)
