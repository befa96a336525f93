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


_MEANINGS: dict[int, dict[str, str]] = {
    400: {
        "bad-range": "The header `Range` makes no sense.",
    },
    401: {
        "unauthenticated": "The request has no valid API key.",
    },
    403: {
        "forbidden": "The API key may not do this. `scope` names the scope that it needs.",
    },
    404: {
        "artifact-not-kept": "The artifact's file was deleted by retention. Its report stays; another job of the model starts from the same records.",
        "delivery-not-found": "The webhook has no such delivery, or it is no longer kept.",
        "device-not-found": "There is no such device. An agent that gets this registers again.",
        "job-not-found": "There is no such job.",
        "key-not-found": "There is no such API key.",
        "model-not-found": "There is no such model.",
        "no-such-route": "There is nothing at this path.",
        "no-such-source": "The kernel has no source of this kind. `kinds` lists those that it has.",
        "record-not-found": "There is no such record.",
        "task-not-found": "The job has no such task.",
        "upload-not-found": "This key has no such upload: it may have been ended, or left for too long.",
        "webhook-not-found": "There is no such webhook.",
        "workload-not-found": "There is no such workload.",
    },
    405: {
        "method-not-allowed": "The path does not have this method. `Allow` lists those that it has.",
    },
    408: {
        "upload-stalled": "Nothing came for too long. Ask how far the upload is, and go on from there.",
    },
    409: {
        "conflict": "The database refused the change: somebody else was faster, or it refers to what is gone.",
        "device-name-taken": "There is a device of this name: it needs a token that names it.",
        "device-pool-mismatch": "Devices of a pool must be alike, and this one is not like the others.",
        "device-state": "The device's state does not allow this order now.",
        "device-taken": "A living agent speaks for the device of this name already.",
        "enrolment-other-device": "The enrolment token is for another device, or another pool.",
        "enrolment-used": "The enrolment token was used. One is good for one machine, once.",
        "idempotency-key-reused": "The idempotency key was used with another body.",
        "job-state": "The job's state does not allow this now. `state` names it.",
        "last-admin-key": "This is the last key for `admin`: without it nobody could make keys any more.",
        "model-importing": "The model is still being imported. Poll it until it is `ready`.",
        "model-in-use": "A job of the model is running: cancel it first, or wait.",
        "model-state": "The model's state does not allow this now.",
        "no-artifact": "The job has no artifact: it has not ended yet, or ended without one.",
        "no-devices": "There is no device in the farm, or in the pool, that the job could measure on.",
        "no-kernel": "No candidate of this kernel has worked yet: it has no source.",
        "not-finished": "The job is still open, and has no report yet.",
        "search-ended": "The search is over, and a budget can change nothing any more.",
        "source-being-made": "A worker makes the kernel's source now, for the first time. Ask again.",
        "source-not-made": "The kernel's source cannot be made. `reason` is the code of why, the detail says it.",
        "too-many-uploads": "The API key has too many unfinished uploads: go on with one, or end some.",
        "too-many-webhooks": "There is no room for more webhooks: delete one first.",
        "upload-offset": "The upload is elsewhere: go on from `offset_bytes`.",
        "webhook-disabled": "The webhook is disabled: enable it first.",
    },
    410: {
        "model-deleted": "The model was deleted.",
    },
    412: {
        "tus-version": "The server does not speak this version of tus. `Tus-Version` names those that it speaks.",
    },
    413: {
        "too-large": "The body is larger than this server takes.",
    },
    415: {
        "unsupported-media-type": "An upload is sent as `application/octet-stream`, a part of one as `application/offset+octet-stream`.",
    },
    416: {
        "range-not-satisfiable": "The file has no such part. `Content-Range` says how large it is.",
    },
    421: {
        "host-not-allowed": "A server on loopback answers only to the names in the URL that it printed.",
    },
    422: {
        "bad-digest": "A SHA-256 has 64 lower-case hexadecimal digits.",
        "bad-length": "The header `Upload-Length` must be the file's size in bytes.",
        "bad-metadata": "The header `Upload-Metadata` must be pairs of a key and a Base64 text, separated by commas.",
        "bad-offset": "The header `Upload-Offset` must be a number of bytes.",
        "bad-shape": "A shape is not of the form `name=1,3,224,224` (for a model), or `1x3x224x224` (to search for), or cannot be.",
        "device-key-required": "There are devices of several pools: name one. `known` lists them.",
        "digest-mismatch": "The bytes that arrived do not come to the announced SHA-256. Begin anew.",
        "empty-file": "The upload is empty.",
        "incompatible-target": "The pool's devices cannot run what is compiled for this target.",
        "invalid-budget": "The budget has no limit, or one that makes no sense.",
        "invalid-cursor": "The cursor is not one that this list gave out.",
        "invalid-device": "What the agent says of its device cannot be right; the detail says what.",
        "invalid-idempotency-key": "An idempotency key is 1 to 200 printable characters.",
        "invalid-input": "Something in the request cannot be used; the detail says what.",
        "invalid-number": "A field of the page's form is no number, or one out of range.",
        "invalid-priority": "There is no such priority.",
        "invalid-request": "The request is not of the described form. `errors` lists what is wrong where.",
        "invalid-round-size": "The round size is out of range.",
        "invalid-seed": "The seed is out of range.",
        "invalid-value": "A value in the request cannot be stored, such as a number out of range.",
        "model-failed": "The model could not be imported: its `error` says why.",
        "not-protobuf": "The upload begins like neither an ONNX file nor a TFLite file.",
        "unknown-device-key": "There is no such pool. `known` lists those that there are.",
        "unknown-kind": "A webhook cannot be told of this. `kinds` lists what it can be told of.",
        "unknown-precision": "There is no such precision. The detail lists them.",
        "unknown-scope": "There is no such scope. `scopes` lists them.",
        "unknown-target": "The target's name means nothing here. The detail lists the nearest that do.",
        "unknown-tuner": "There is no such tuner. The detail lists them.",
        "unsupported-precision": "The precision is for other targets. Leave it out.",
        "unsupported-target": "The target is known, but nothing can be tuned for it.",
        "upload-overrun": "There are more bytes than the upload was said to have.",
        "webhook-address": "The webhook's host is not known, or leads to an address that is not public.",
        "webhook-url": "This is no URL that a webhook could have; the detail says why.",
    },
    423: {
        "upload-locked": "Another request is writing to the upload. Try again when it is over.",
    },
    500: {
        "internal": "Something went wrong in the server. Its log knows what: report it with the `request_id`.",
    },
    503: {
        "busy": "The job goes from step to step too fast to be changed right now. Try again.",
        "database-read-only": "The database takes no writes now. Try again later.",
        "database-unavailable": "The database does not answer now. Try again later.",
        "store-unavailable": "The store cannot be written now. Try again later.",
    },
    507: {
        "database-full": "The farm's database has no room left. Nothing can be added until somebody makes room.",
        "store-full": "The farm's store has no room left. Nothing can be uploaded until somebody makes room.",
    },
}
PROBLEM_KINDS: Mapping[str, ProblemKind] = MappingProxyType(
    dict(
        sorted(
            (code, ProblemKind(status, meaning))
            for status, meanings in _MEANINGS.items()
            for code, meaning in meanings.items()
        )
    )
)
"""By code. A code that was given out once is never given another meaning."""
