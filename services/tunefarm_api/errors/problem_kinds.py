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
    """The meaning of a code.

    Attributes:
        status: The HTTP status that it comes with.
        meaning: The fault and its remedy, for people.
    """

    status: int
    meaning: str


_MEANINGS: dict[int, dict[str, str]] = {
    400: {
        "bad-range": "The header `Range` is invalid.",
    },
    401: {
        "unauthenticated": "The request has no valid API key.",
    },
    403: {
        "forbidden": "The API key may not do this. `scope` names the required scope.",
        "quota-bytes": "The API key may store no more bytes. `limit` and `used` say how many. Delete models, samples or unfinished uploads, or have an administrator take back imported records.",
        "quota-device-minutes": "The API key's minutes of search of 30 days are not enough for this job. `left` says how many it may have: "
        "give it a time budget of at most that.",
        "quota-own-jobs": "The API key has limits for its jobs, and this job is not its own: it may not raise the job's budget or priority, "
        "retry it or measure it again.",
        "quota-priority": "The priority is too high for jobs of this API key. `limit` names the highest.",
    },
    404: {
        "artifact-not-kept": "The artifact's file was deleted by retention. The report stays. A new job for the model starts "
        "from the same records.",
        "artifact-replaced": "The job's file has changed: a better draft or its artifact replaced it. Download it again.",
        "delivery-not-found": "The webhook has no such delivery, or retention deleted it.",
        "device-not-found": "There is no such device. An agent that gets this registers again.",
        "job-not-found": "There is no such job.",
        "key-not-found": "There is no such API key.",
        "model-not-found": "There is no such model.",
        "no-such-page": "The dashboard has no page at this address.",
        "no-such-route": "There is no route at this path.",
        "no-such-source": "The kernel has no source of this kind. `kinds` lists its kinds.",
        "not-signed": "The artifact has no signed statement: the farm had no signing key when it was compiled (`TUNEFARM_SIGNING_KEY`).",
        "record-not-found": "There is no such record.",
        "quantised-not-found": "The job's quantised network is gone. Start another job on the same terms.",
        "samples-not-found": "The model has no such samples: they were deleted, or no job used them in time.",
        "sweep-not-found": "There is no such sweep.",
        "task-not-found": "The job has no such task.",
        "upload-not-found": "This key has no such upload: it was deleted, or has expired.",
        "webhook-not-found": "There is no such webhook.",
        "workload-not-found": "There is no such workload.",
    },
    405: {
        "method-not-allowed": "The path does not support this method. `Allow` lists its methods.",
    },
    408: {
        "upload-stalled": "The bytes of the request came too slowly, or stopped. Send the request again; an upload in parts continues from its offset.",
    },
    409: {
        "conflict": "The database refused the change: another request was faster, or a referenced row is gone.",
        "artifact-unsigned": "The farm delivers only signed artifacts, and the worker that made this artifact did not sign it. Compile it again.",
        "audit-head-differs": "The audit log has no entry of that number with that hash.",
        "credential-not-due": "The request's key is not a device credential that expires soon. Agents replace it after half of its validity.",
        "device-name-taken": "A device of this name exists: use a token with its name.",
        "device-pool-mismatch": "Devices of a pool must be identical, and this device differs from the others.",
        "device-state": "The device's state does not allow this now.",
        "device-taken": "Another live agent reports for the device of this name.",
        "key-not-rotatable": "Only a valid key that a person created can be rotated.",
        "enrolment-other-device": "The enrolment token is for another device or pool.",
        "no-gateway": "The farm does not reach this device over a gateway.",
        "enrolment-used": "The enrolment token was used, or has expired. A token is valid for one machine, once.",
        "idempotency-key-reused": "The idempotency key was used with a different body.",
        "job-state": "The job's state does not allow this now. `state` names it.",
        "last-admin-key": "This is the last key with the scope `admin`: without it nobody could create keys.",
        "model-importing": "The model is still being imported. Poll it until it is `ready`.",
        "model-in-use": "A job of the model is running: cancel it first, or wait. `sweep_ids` names the sweeps that such jobs belong to.",
        "model-state": "The model's state does not allow this now.",
        "no-artifact": "The job has no artifact: it has not ended yet, or ended without one.",
        "no-devices": "The farm or the pool has no device that the job could measure on.",
        "no-linker": "No worker that calibrated the pool's device can link for it. The detail names the package to install.",
        "no-kernel": "No config of this kernel has been tried or has worked yet, so it has no source.",
        "not-finished": "The job has not ended and has no report yet.",
        "samples-checking": "The samples are still being checked. Poll them until they are `ready`.",
        "samples-in-use": "A job with the samples is running: cancel it first, or wait.",
        "search-ended": "The search has ended; a new budget has no effect.",
        "source-being-made": "A worker is generating the kernel's source. Ask again.",
        "source-not-made": "The kernel's source cannot be generated. `reason` is a code, and the detail explains it.",
        "too-many-samples": "The model has too many files of samples: delete some.",
        "too-many-tests": "Too many test events of the webhook wait to be sent: see its deliveries.",
        "too-many-uploads": "The API key has too many unfinished uploads: finish or delete some.",
        "too-many-webhooks": "The farm or this key has its maximum number of webhooks: delete a webhook first.",
        "upload-offset": "The offset is wrong: continue from `offset_bytes`.",
        "webhook-disabled": "The webhook is disabled: enable it first.",
    },
    410: {
        "model-deleted": "The model was deleted.",
    },
    412: {
        "tus-version": "The server does not support this version of tus. `Tus-Version` lists its versions.",
    },
    413: {
        "too-large": "The body is larger than the server allows.",
    },
    415: {
        "unsupported-media-type": "The `Content-Type` must be `application/octet-stream` for an upload, "
        "`application/offset+octet-stream` for a part of one, `application/jsonl` for records.",
    },
    416: {
        "range-not-satisfiable": "The range is outside the file. `Content-Range` has the file's size.",
    },
    421: {
        "host-not-allowed": "A server on loopback accepts only the host names of the URL that it printed.",
    },
    422: {
        "ambiguous": "A name or a part of an id matches several items. `ids` lists them; give more of the id.",
        "audit-too-young": "Only entries of the audit log that are older than `least_days` days can be pruned.",
        "bad-digest": "The SHA-256 is not 64 lower-case hexadecimal digits.",
        "bad-length": "The header `Upload-Length` must be the file's size in bytes.",
        "bad-metadata": "The header `Upload-Metadata` must be pairs of a key and a Base64 text, separated by commas.",
        "bad-offset": "The header `Upload-Offset` must be a number of bytes.",
        "bad-shape": "A shape is invalid. Its form is `name=1,3,224,224` for a model, `1x3x224x224` in a search. Several sizes of a "
        "dimension are written `160|320`, a range of batch sizes `1..8`.",
        "bad-value": "A value of an input is invalid. Its form is `name=16000`, `name=true`, `name=1.5,2` or `name=[[1,2],[3,4]]`.",
        "bad-comparison": "Too few jobs, too many jobs, or the same job twice. Ask for two to six different jobs.",
        "too-many-shapes": "The shapes make more than 64 combinations. Give fewer sizes, or make several artifacts.",
        "device-key-required": "The farm has several pools: name a pool. `known` lists them.",
        "digest-mismatch": "The received bytes do not match the announced SHA-256. Start again.",
        "draft-too-large": "Only in an event: the untuned artifact is larger than the limit for all drafts together.",
        "empty-samples": "The file of samples is empty.",
        "empty-sweep": "No combination of the sweep can be tuned. `reasons` says why.",
        "empty-file": "The upload is empty.",
        "incompatible-target": "The pool's devices cannot run code for this target.",
        "invalid-budget": "The budget has no limit, or an invalid limit.",
        "invalid-cursor": "The cursor is not from this list.",
        "invalid-device": "The agent's description of its device is invalid; the detail says why.",
        "invalid-idempotency-key": "The idempotency key is not 1 to 200 printable characters.",
        "invalid-input": "A part of the request is invalid; the detail says which.",
        "invalid-max-error": "`max_error` is not above 0 and at most 1.",
        "invalid-number": "A field of the page's form is not a number, or is out of range.",
        "invalid-priority": "There is no such priority.",
        "invalid-record": "A line is not a tuning record, or has values that no record can have. `line` is its number. Nothing was imported.",
        "invalid-request": "The request does not match the schema. `errors` lists each error and its place.",
        "invalid-round-size": "The round size is out of range.",
        "invalid-seed": "The seed is out of range.",
        "invalid-tag": "A tag is longer than 40 characters, or has characters other than letters, digits and `. _ : / + = -` between them.",
        "invalid-value": "A value in the request cannot be stored, such as a number out of range.",
        "model-failed": "The model could not be imported: its `error` says why.",
        "not-npz": "The samples are not a .npz file: their first bytes say so.",
        "not-protobuf": "The upload is neither an ONNX file nor a TFLite file: its first bytes say so.",
        "note-too-long": "The note is longer than 4,000 characters.",
        "records-incomplete": "The last line of the records is incomplete. Nothing was imported.",
        "samples-needed": "Precision int8 quantises the model on samples: upload some, and name them in the job.",
        "samples-refused": "The samples cannot be used: their `error` says why.",
        "too-many-tags": "More than 20 tags.",
        "too-many-jobs": "The sweep has too many combinations. `limit` is the largest number.",
        "too-many-sample-files": "The job names too many files of samples. `limit` is the largest number.",
        "unknown-baseline": "There is no such runtime to time beside the artifact. `known` lists the runtimes.",
        "unknown-device-key": "There is no such pool. `known` lists the pools.",
        "invalid-certificate-request": "The request for a certificate cannot be used: the detail says why.",
        "no-authority": "The keys of the farm's gateway cannot be read or written: see `TUNEFARM_GATEWAY_DIR`.",
        "tracker-removed": "No device waits at a tracker any more: devices dial the farm's gateway. Update the agent.",
        "unknown-kind": "There is no such kind of event. `kinds` lists the kinds.",
        "unknown-precision": "There is no such precision. The detail lists the precisions.",
        "unknown-scope": "There is no such scope. `scopes` lists the scopes.",
        "unknown-target": "The target's name is unknown. The detail lists similar names.",
        "unknown-tuner": "There is no such tuner. The detail lists the tuners.",
        "unsupported-precision": "The target does not support this precision. Omit it.",
        "unsupported-target": "The target is known, but tuning for it is not supported.",
        "upload-overrun": "There are more bytes than the announced length.",
        "webhook-address": "The webhook's host is unknown, or it has an address or port that no webhook of this farm may have. The detail says which.",
        "webhook-url": "The URL cannot be used for a webhook; the detail says why.",
    },
    423: {
        "upload-locked": "Another request is writing to the upload. Try again after it.",
    },
    429: {
        "audit-check-running": "Another check of the audit log runs in this process. Try again after `retry_after_sec`.",
        "quota-open-jobs": "The API key has reached its limit of open jobs; `limit` says how many. Wait until a job ends, or cancel a job.",
        "rate-limited": "The API key, or the address if there is no valid key, has made too many requests. Try again after `retry_after_sec`.",
        "too-many-at-once": "The API key, or the address if there is no key, has too many requests at once. Try again when some have ended.",
    },
    431: {
        "too-many-headers": "The request has too many headers; `limit` says how many are allowed.",
    },
    500: {
        "internal": "The server has a bug. Report it with the `request_id`; its log has the details.",
    },
    503: {
        "busy": "The job's steps change too fast for an update now. Try again.",
        "database-read-only": "The database is read-only now. Try again later.",
        "database-unavailable": "The database does not answer now. Try again later.",
        "overloaded": "The server handles its maximum number of requests now. Try again after `retry_after_sec`.",
        "signing-keys-unavailable": "The file of the farm's public keys (`TUNEFARM_SIGNING_KEY` with `.pub`) cannot be read now.",
        "store-unavailable": "The store cannot be read or written now. Try again later.",
    },
    507: {
        "database-full": "The farm's database is full. Nothing can be added until space is freed.",
        "store-full": "The farm's store is full. Nothing can be uploaded until space is freed.",
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
"""Kinds by code. A released code never gets another meaning."""
