"""What somebody with a worker's connection to the broker may put into the queues."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

STEP = "stp_that_is_not"


def message(*, body: Any = None, tag: str = "tag", **changes: Any) -> dict[str, Any]:
    """Return a message as the dispatcher sends it; `changes` replace members of `headers`, `properties` or the message."""
    then = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    packed = json.dumps([[STEP], {}, then] if body is None else body)
    sent: dict[str, Any] = {
        "body": base64.b64encode(packed.encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": "tunefarm.run_step",
            "id": tag,
            "root_id": tag,
            "eta": None,
            "expires": None,
            "retries": 0,
            "timelimit": [660.0, 600.0],
            "argsrepr": "()",
            "kwargsrepr": "{}",
            "ignore_result": True,
        },
        "properties": {
            "correlation_id": tag,
            "reply_to": "nobody",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": "import"},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": tag,
        },
    }
    for name, value in changes.items():
        member = name.replace("_", "-") if name.startswith("content_") else name
        if member in ("headers", "properties") and isinstance(value, dict):
            sent[member].update(value)
        else:
            sent[member] = value
    return sent


def without(member: str, name: str) -> dict[str, Any]:
    """Return a message that lacks a header or property."""
    sent = message()
    del sent[member][name]
    return sent


_MAP = {"task": "celery.map", "args": [{"task": "tunefarm.run_step"}, [[STEP]]], "kwargs": {}}
_GZIP_BOMB = base64.b64encode(b"\x1f\x8b").decode()

FORGED: dict[str, Any] = {
    "a list": [],
    "nothing": None,
    "a number": 1,
    "an empty object": {},
    "without properties": {"body": "", "headers": {}},
    "properties as a list": message(properties=[]),
    "headers as nothing": message(headers=None),
    "headers as a list": message(headers=[1]),
    "headers as a text": message(headers="x"),
    "no tag": message(properties={"delivery_tag": None}),
    "a tag that is an object": message(properties={"delivery_tag": {"a": 1}}),
    "a tag that is a list": message(properties={"delivery_tag": [1]}),
    "without a tag": without("properties", "delivery_tag"),
    "no origin": message(properties={"delivery_info": None}),
    "half an origin": message(properties={"delivery_info": {"exchange": ""}}),
    "an origin of numbers": message(properties={"delivery_info": {"exchange": 1, "routing_key": 2}}),
    "a body that is a number": message(body=[[STEP], {}, {}]) | {"body": 5},
    "a body that is not base64": message() | {"body": "!!!"},
    "a body that is no JSON": message() | {"body": base64.b64encode(b"{").decode()},
    "a body of another encoding": message(properties={"body_encoding": "zip"}),
    "a compressed body": message(headers={"compression": "application/x-gzip"}) | {"body": _GZIP_BOMB},
    "an unknown compression": message(headers={"compression": "best"}),
    "pickle": message(content_type="application/x-python-serialize", content_encoding="binary"),
    "yaml": message(content_type="application/x-yaml"),
    "no content": message(content_type=None),
    "no task": message(headers={"task": None}),
    "without a task": without("headers", "task"),
    "a task that is a list": message(headers={"task": [1]}),
    "a task that is not": message(headers={"task": "os.system"}),
    "a task of Celery's": message(body=[[_MAP, [[STEP]]], {}, {}], headers={"task": "celery.map"}),
    "a task that cleans up": message(body=[[], {}, {}], headers={"task": "celery.backend_cleanup"}),
    "a former protocol": message(body={"task": "tunefarm.run_step", "id": "x", "args": [STEP]}, headers=None),
    "an id that is a list": message(headers={"id": [1]}),
    "a time that is none": message(headers={"eta": "junk"}),
    "in a far future": message(headers={"eta": "9999-01-01T00:00:00"}),
    "over already": message(headers={"expires": "2000-01-01T00:00:00"}),
    "an end that is an object": message(headers={"expires": {}}),
    "retries": message(headers={"retries": "x"}),
    "limits that are texts": message(headers={"timelimit": ["a", "b"]}),
    "a single limit": message(headers={"timelimit": [1]}),
    "limits below zero": message(headers={"timelimit": [-1, -1]}),
    "limits without an end": message(headers={"timelimit": [math.inf, math.nan]}),
    "limits that are none": message(headers={"timelimit": None}),
    "a priority that is a text": message(properties={"priority": "high"}),
    "a body that is an object": message(body={"a": 1}),
    "arguments by name": message(body=[[], {"step_id": STEP}, {}]),
    "an object as the step": message(body=[[{"$x": [1]}], {}, {}]),
    "many arguments": message(body=[["a"] * 1000, {}, {}]),
    "a step and a fence": message(body=[[STEP, 1], {}, {}]),
    "a device without a fence": message(body=[["dev_x"], {}, {}], headers={"task": "tunefarm.calibrate"}),
    "a fence that is a text": message(body=[["dev_x", "1"], {}, {}], headers={"task": "tunefarm.calibrate"}),
    "nothing afterwards": message(body=[[STEP], {}, None]),
    "a task afterwards": message(body=[[STEP], {}, {"callbacks": [_MAP]}]),
    "a task after a failure": message(body=[[STEP], {}, {"errbacks": [_MAP]}]),
    "a chain": message(body=[[STEP], {}, {"chain": [_MAP]}]),
    "a chord": message(body=[[STEP], {}, {"chord": _MAP}]),
}
"""Messages that are parsed as JSON, and that the dispatcher never sends."""

NO_JSON: dict[str, bytes] = {
    "no JSON": b"{{{",
    "no text": b"\xff\xfe",
    "empty": b"",
    "deep": b"[" * 100_000,
    "a date of kombu's": b'{"__type__": "datetime", "__value__": "junk"}',
    "bytes of kombu's": b'{"__type__": "bytes", "__value__": 5}',
}
