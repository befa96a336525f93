"""Records over HTTP: all of an import, or nothing of it."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tuning_records import RECORD
from waiting import wait_until

from tunefarm_api.concurrency import RequestsUnderWay
from tunefarm_app.access.api_keys import create_api_key, rotate_api_key
from tunefarm_app.access.quotas import KeyLimits
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_db.values import Workload
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config

JSON_LINES = {"Content-Type": "application/jsonl"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_records_bytes": 20_000})


@pytest.fixture(autouse=True)
def workload(services: Services) -> Workload:
    workload = Workload(
        key=RECORD.workload_key,
        toolchain=RECORD.toolchain,
        name="matmul",
        flops=2.0,
        args=[{"name": "x", "shape": [1, 8], "dtype": "float32"}],
        ir="the code",
    )
    with services.uow.write() as repos:
        repos.workloads.add_many([workload])
    return workload


def send(client: TestClient, *records: TuningRecord, **params: Any) -> Any:
    return send_text(client, "".join(f"{record.to_json()}\n" for record in records), **params)


def send_text(client: TestClient, text: str | bytes, **params: Any) -> Any:
    return client.post("/v1/records", content=text, params=params, headers=JSON_LINES)


def test_records_are_added_once(client: TestClient) -> None:
    other = replace(RECORD, samples_sec=(2e-3,), kernel="of no meaning here")
    failed = replace(RECORD, outcome=Outcome.RUN_ERROR, samples_sec=(), message="it \x1b[31mcrashed")
    answer = send(client, RECORD, other, failed, RECORD)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"imported": 3, "left_out": {"on-record": 1}, "unchecked": 3}
    assert send(client, RECORD, other, failed).json() == {
        "imported": 0,
        "left_out": {"on-record": 3},
        "unchecked": 0,
    }
    listed = client.get("/v1/records").json()["items"]
    assert len(listed) == 3
    assert {record["kernel"] for record in listed} == {"matmul"}
    assert [record["message"] for record in listed if record["message"]] == ["it \\x1b[31mcrashed"]
    (best,) = client.get("/v1/records/best").json()["items"]
    assert (best["cost_sec"], best["job_id"], best["device_id"]) == (1e-3, None, None)


def test_a_measurement_that_comes_back_with_another_config_is_known(client: TestClient) -> None:
    """Two configs may give one kernel, so MetaSchedule's database does not tell which of them was measured."""
    other = Config(0, (*RECORD.config.decisions[:-1], 0))
    assert other != RECORD.config
    samples = (1.5e-3, 1.25e-3, 1.125e-3)
    measured = [replace(RECORD, samples_sec=samples), replace(RECORD, config=other, samples_sec=samples)]
    assert send(client, *measured).json() == {"imported": 1, "left_out": {"on-record": 1}, "unchecked": 1}
    single = [replace(record, samples_sec=samples[:1]) for record in measured]
    assert send(client, *single).json() == {"imported": 2, "left_out": {}, "unchecked": 2}


def test_a_confirmation_supersedes_what_it_confirms(client: TestClient) -> None:
    assert send(client, RECORD).json()["imported"] == 1
    confirmed = replace(RECORD, samples_sec=(5e-3,), extra={"confirmed": True})
    assert send(client, confirmed).json()["imported"] == 1
    (best,) = client.get("/v1/records/best").json()["items"]
    assert (best["cost_sec"], best["confirmed"]) == (5e-3, True)


def test_records_of_unknown_workloads_are_counted_or_kept(client: TestClient) -> None:
    strangers = (replace(RECORD, workload_key="nobody's"), replace(RECORD, toolchain="tvm-9"))
    answer = send(client, RECORD, *strangers)
    assert answer.json() == {"imported": 1, "left_out": {"unknown-workload": 2}, "unchecked": 1}
    assert send(client, *strangers, keep_unknown=True).json() == {
        "imported": 2,
        "left_out": {},
        "unchecked": 2,
    }


GOOD = RECORD.to_json() + "\n"


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (GOOD + "nonsense\n" + GOOD, "invalid-record", 2),
        (GOOD + GOOD[:-20], "records-incomplete", 2),
        (GOOD + "\n" + GOOD.replace('"version":1', '"version":2'), "invalid-record", 3),
        (GOOD.replace('"build_sec":0.1', '"build_sec":NaN'), "invalid-record", 1),
        (GOOD.replace('"build_sec":0.1', '"build_sec":-1'), "invalid-record", 1),
        (GOOD.replace('"measured_at":1.0', f'"measured_at":{time.time() + 1e7}'), "invalid-record", 1),
        (GOOD.replace("[0.001]", "[1e400]"), "invalid-record", 1),
        (GOOD.replace("[0.001]", "[]"), "invalid-record", 1),
        (GOOD.replace("[0.001]", '"12"'), "invalid-record", 1),
        (GOOD.replace("[0.001]", "[5e-324]"), "invalid-record", 1),
        (GOOD.replace("[0.001]", "[1.7e308,1.7e308]"), "invalid-record", 1),
        (GOOD.replace('"target":"t"', '"target":""'), "invalid-record", 1),
        (GOOD.replace('"target":"t"', '"target":"a\\u0000b"'), "invalid-record", 1),
        (GOOD.replace('"target":"t"', '"target":"' + "x" * 3000 + '"'), "invalid-record", 1),
        (GOOD.replace('"extra":{}', '"extra":{"a":"\\u0000"}'), "invalid-record", 1),
        (GOOD.replace('"extra":{}', '"extra":{"a":1e999}'), "invalid-record", 1),
        (GOOD.replace('"extra":{}', '"extra":{"a":"\\ud800"}'), "invalid-record", 1),
        (b"\xff\xfe\n", "invalid-record", 1),
        ("[" * 15_000 + "\n", "invalid-record", 1),
    ],
)
def test_one_bad_line_and_nothing_is_added(
    client: TestClient, problem: Any, text: str | bytes, code: str, line: int
) -> None:
    document = problem(send_text(client, text), 422, code)
    assert document["line"] == line
    assert f"line {line}" in document["detail"]
    assert client.get("/v1/records").json()["items"] == []


def test_extra_keeps_what_can_be_stored(client: TestClient) -> None:
    extra = {"face": "\U0001f600", "folder": "C:\\udata\\u0000"}
    assert send(client, replace(RECORD, extra=extra)).json() == {
        "imported": 1,
        "left_out": {},
        "unchecked": 1,
    }
    (listed,) = client.get("/v1/records").json()["items"]
    assert listed["extra"] == extra


def test_limits(client: TestClient, services: Services, problem: Any) -> None:
    problem(send_text(client, GOOD * 100), 413, "too-large")
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    problem(client.post("/v1/records", content=GOOD, headers=form), 415, "unsupported-media-type")
    assert send_text(client, "").json() == {"imported": 0, "left_out": {}, "unchecked": 0}
    reader = {"Authorization": f"Bearer {create_api_key(services, name='r', scopes=['read'])[1]}"}
    problem(client.post("/v1/records", content=GOOD, headers={**JSON_LINES, **reader}), 403, "forbidden")
    assert client.get("/v1/records").json()["items"] == []


def test_a_workloads_code(client: TestClient, workload: Workload, problem: Any) -> None:
    path = f"/v1/workloads/{workload.key}/code"
    answer = client.get(path, params={"toolchain": workload.toolchain})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["ir"], answer.json()["name"]) == ("the code", "matmul")
    problem(client.get(path, params={"toolchain": "tvm-9"}), 404, "workload-not-found")
    problem(client.get(path), 422, "invalid-request")


def test_exported_lines_are_imported(client: TestClient) -> None:
    """What a farm exports has the kernel and its shapes in words, and is read back."""
    send(client, RECORD)
    (listed,) = client.get("/v1/records").json()["items"]
    line = json.dumps({**json.loads(RECORD.to_json()), "kernel": listed["kernel"], "shapes": "1x8 float32"})
    assert send_text(client, line).json() == {"imported": 0, "left_out": {"on-record": 1}, "unchecked": 0}


def test_what_a_key_imported_can_be_taken_back(client: TestClient, services: Services, problem: Any) -> None:
    """Before, false times of a key with the scope write stayed for good, and nobody saw whose they were."""
    key, text = create_api_key(services, name="liar", scopes=["read", "write"])
    own = str(client.headers["Authorization"])
    send(client, RECORD)
    successor, rotated = rotate_api_key(services, key.id)
    for number, token in enumerate((text, rotated)):
        client.headers["Authorization"] = f"Bearer {token}"
        send(client, replace(RECORD, samples_sec=(1e-9 * (number + 1),), extra={"confirmed": True}))
    asked = {"key_id": successor.id}
    problem(client.post("/v1/records/purge", json=asked), 403, "forbidden")
    client.headers["Authorization"] = own
    shown = client.get("/v1/records").json()["items"]
    assert [item["owner"] for item in shown] == [key.id, key.id, own.split("_")[1]]
    client.post(f"/v1/keys/{key.id}/revoke")
    assert client.post("/v1/records/purge", json=asked).json() == {
        "records": 2,
        "measured_by": [],
        "used_by": [],
    }
    (left,) = client.get("/v1/records/best").json()["items"]
    assert left["cost_sec"] == RECORD.cost_sec
    entry = client.get("/v1/audit", params={"action": "records-purged"}).json()["items"][0]
    assert (entry["subject"], entry["details"]["records"]) == (key.id, 2)
    problem(client.post("/v1/records/purge", json={"key_id": "0" * 16}), 404, "key-not-found")
    for wrong in ({**asked, "device_id": "dev_x"}, {**asked, "ticket_jti": "t1"}, {}):
        problem(client.post("/v1/records/purge", json=wrong), 422, "invalid-request")


def test_imported_records_count_in_the_bytes_of_a_key(
    client: TestClient, services: Services, problem: Any
) -> None:
    """Before, a key with a limit of bytes filled the database by imports."""
    size = len(RECORD.to_json())
    limits = KeyLimits(bytes=2 * size + 50)
    key, text = create_api_key(services, name="greedy", scopes=["read", "write"], limits=limits)
    own = str(client.headers["Authorization"])
    client.headers["Authorization"] = f"Bearer {text}"
    records = [replace(RECORD, samples_sec=(1e-3 * number,)) for number in (1, 2, 3)]
    assert send(client, *records[:2]).status_code == 200
    refused = problem(send(client, records[2]), 403, "quota-bytes")
    assert abs(refused["used"] - 2 * size) < 50
    assert send(client, records[0]).json()["left_out"] == {"on-record": 1}
    client.headers["Authorization"] = own
    assert send(client, records[2]).status_code == 200
    client.post("/v1/records/purge", json={"key_id": key.id})
    client.headers["Authorization"] = f"Bearer {text}"
    assert send(client, records[0]).json()["imported"] == 1


def test_a_record_has_no_more_samples_than_one_of_the_farm(client: TestClient, problem: Any) -> None:
    """Before, ten thousand each: a page of 500 records took a gigabyte of the API's memory."""
    assert send(client, replace(RECORD, samples_sec=(1e-3,) * 1000)).status_code == 200
    refused = send(client, replace(RECORD, samples_sec=(1e-3,) * 1001))
    assert "it has 1001 samples" in problem(refused, 422, "invalid-record")["detail"]


def test_a_key_has_two_imports_at_once_and_one_is_read_at_a_time(
    app: FastAPI, client: TestClient, problem: Any
) -> None:
    """Before, any number was: each takes some hundred megabytes of the API's memory while it is read."""
    under_way: RequestsUnderWay = app.state.under_way
    own = str(client.headers["Authorization"]).split("_")[1]
    assert client.portal is not None
    client.portal.call(under_way.importing.acquire)
    with under_way.counted_import(own), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(send, client, RECORD)
        wait_until(lambda: under_way.imports(own) == 2, "the import to have begun")
        problem(send(client, RECORD), 429, "too-many-at-once")
        assert not waiting.done()
        client.portal.call(under_way.importing.release)
        assert waiting.result(60).json()["imported"] == 1
