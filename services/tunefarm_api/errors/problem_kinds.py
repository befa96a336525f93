"""The table of problem codes: each has a status and a meaning that never change.

`docs/reference/problems.md` is made from this, and a test holds the code that raises them against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

URN = "urn:tunefarm:problem:"


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """What a code stands for.

    Attributes:
        status: The HTTP status that it comes with.
        meaning: What is wrong, and what to do.
    """

    status: int
    meaning: str


_KINDS = {
    "artifact-not-kept": (
        404,
        "The artifact's file was deleted by retention. Its report stays; another job of the model starts from the same records.",
    ),
    "bad-digest": (422, "A SHA-256 has 64 lower-case hexadecimal digits."),
    "bad-length": (422, "The header `Upload-Length` must be the file's size in bytes."),
    "bad-metadata": (
        422,
        "The header `Upload-Metadata` must be pairs of a key and a Base64 text, separated by commas.",
    ),
    "bad-offset": (422, "The header `Upload-Offset` must be a number of bytes."),
    "bad-range": (400, "The header `Range` makes no sense."),
    "bad-shape": (
        422,
        "A shape is not of the form `name=1,3,224,224` (for a model), or `1x3x224x224` (to search for), or cannot be.",
    ),
    "busy": (503, "The job goes from step to step too fast to be changed right now. Try again."),
    "conflict": (
        409,
        "The database refused the change: somebody else was faster, or it refers to what is gone.",
    ),
    "database-full": (
        507,
        "The farm's database has no room left. Nothing can be added until somebody makes room.",
    ),
    "database-read-only": (503, "The database takes no writes now. Try again later."),
    "database-unavailable": (503, "The database does not answer now. Try again later."),
    "delivery-not-found": (404, "The webhook has no such delivery, or it is no longer kept."),
    "device-key-required": (422, "There are devices of several pools: name one. `known` lists them."),
    "device-name-taken": (409, "There is a device of this name: it needs a token that names it."),
    "device-not-found": (404, "There is no such device. An agent that gets this registers again."),
    "device-pool-mismatch": (409, "Devices of a pool must be alike, and this one is not like the others."),
    "device-state": (409, "The device's state does not allow this order now."),
    "device-taken": (409, "A living agent speaks for the device of this name already."),
    "digest-mismatch": (422, "The bytes that arrived do not come to the announced SHA-256. Begin anew."),
    "empty-file": (422, "The upload is empty."),
    "enrolment-other-device": (409, "The enrolment token is for another device, or another pool."),
    "enrolment-used": (409, "The enrolment token was used. One is good for one machine, once."),
    "forbidden": (403, "The API key may not do this. `scope` names the scope that it needs."),
    "host-not-allowed": (421, "A server on loopback answers only to the names in the URL that it printed."),
    "idempotency-key-reused": (409, "The idempotency key was used with another body."),
    "incompatible-target": (422, "The pool's devices cannot run what is compiled for this target."),
    "internal": (
        500,
        "Something went wrong in the server. Its log knows what: report it with the `request_id`.",
    ),
    "invalid-budget": (422, "The budget has no limit, or one that makes no sense."),
    "invalid-cursor": (422, "The cursor is not one that this list gave out."),
    "invalid-device": (422, "What the agent says of its device cannot be right; the detail says what."),
    "invalid-idempotency-key": (422, "An idempotency key is 1 to 200 printable characters."),
    "invalid-input": (422, "Something in the request cannot be used; the detail says what."),
    "invalid-number": (422, "A field of the page's form is no number, or one out of range."),
    "invalid-priority": (422, "There is no such priority."),
    "invalid-request": (422, "The request is not of the described form. `errors` lists what is wrong where."),
    "invalid-round-size": (422, "The round size is out of range."),
    "invalid-seed": (422, "The seed is out of range."),
    "invalid-value": (422, "A value in the request cannot be stored, such as a number out of range."),
    "job-not-found": (404, "There is no such job."),
    "job-state": (409, "The job's state does not allow this now. `state` names it."),
    "key-not-found": (404, "There is no such API key."),
    "last-admin-key": (409, "This is the last key for `admin`: without it nobody could make keys any more."),
    "method-not-allowed": (405, "The path does not have this method. `Allow` lists those that it has."),
    "model-deleted": (410, "The model was deleted."),
    "model-failed": (422, "The model could not be imported: its `error` says why."),
    "model-importing": (409, "The model is still being imported. Poll it until it is `ready`."),
    "model-in-use": (409, "A job of the model is running: cancel it first, or wait."),
    "model-not-found": (404, "There is no such model."),
    "model-state": (409, "The model's state does not allow this now."),
    "no-artifact": (409, "The job has no artifact: it has not ended yet, or ended without one."),
    "no-devices": (409, "There is no device in the farm, or in the pool, that the job could measure on."),
    "no-kernel": (409, "No candidate of this kernel has worked yet: it has no source."),
    "no-such-route": (404, "There is nothing at this path."),
    "no-such-source": (404, "The kernel has no source of this kind. `kinds` lists those that it has."),
    "not-finished": (409, "The job is still open, and has no report yet."),
    "not-protobuf": (422, "The upload begins like neither an ONNX file nor a TFLite file."),
    "range-not-satisfiable": (416, "The file has no such part. `Content-Range` says how large it is."),
    "record-not-found": (404, "There is no such record."),
    "search-ended": (409, "The search is over, and a budget can change nothing any more."),
    "source-being-made": (409, "A worker makes the kernel's source now, for the first time. Ask again."),
    "source-not-made": (
        409,
        "The kernel's source cannot be made. `reason` is the code of why, the detail says it.",
    ),
    "store-full": (
        507,
        "The farm's store has no room left. Nothing can be uploaded until somebody makes room.",
    ),
    "store-unavailable": (503, "The store cannot be written now. Try again later."),
    "task-not-found": (404, "The job has no such task."),
    "too-large": (413, "The body is larger than this server takes."),
    "too-many-uploads": (409, "The API key has too many unfinished uploads: go on with one, or end some."),
    "too-many-webhooks": (409, "There is no room for more webhooks: delete one first."),
    "tus-version": (
        412,
        "The server does not speak this version of tus. `Tus-Version` names those that it speaks.",
    ),
    "unauthenticated": (401, "The request has no valid API key."),
    "unknown-device-key": (422, "There is no such pool. `known` lists those that there are."),
    "unknown-kind": (422, "A webhook cannot be told of this. `kinds` lists what it can be told of."),
    "unknown-precision": (422, "There is no such precision. The detail lists them."),
    "unknown-scope": (422, "There is no such scope. `scopes` lists them."),
    "unknown-target": (422, "The target's name means nothing here. The detail lists the nearest that do."),
    "unknown-tuner": (422, "There is no such tuner. The detail lists them."),
    "unsupported-media-type": (
        415,
        "An upload is sent as `application/octet-stream`, a part of one as `application/offset+octet-stream`.",
    ),
    "unsupported-precision": (422, "The precision is for other targets. Leave it out."),
    "unsupported-target": (422, "The target is known, but nothing can be tuned for it."),
    "upload-locked": (423, "Another request is writing to the upload. Try again when it is over."),
    "upload-not-found": (404, "This key has no such upload: it may have been ended, or left for too long."),
    "upload-offset": (409, "The upload is elsewhere: go on from `offset_bytes`."),
    "upload-overrun": (422, "There are more bytes than the upload was said to have."),
    "upload-stalled": (408, "Nothing came for too long. Ask how far the upload is, and go on from there."),
    "webhook-address": (422, "The webhook's host is not known, or leads to an address that is not public."),
    "webhook-disabled": (409, "The webhook is disabled: enable it first."),
    "webhook-not-found": (404, "There is no such webhook."),
    "webhook-url": (422, "This is no URL that a webhook could have; the detail says why."),
    "workload-not-found": (404, "There is no such workload."),
}

PROBLEM_KINDS: Mapping[str, ProblemKind] = MappingProxyType(
    {code: ProblemKind(status, meaning) for code, (status, meaning) in _KINDS.items()}
)
"""By code. A code that was given out once is never given another meaning."""
