"""Random frames and requests against relay, gateway and API: nothing crashes or hangs, and no lease is lost.

``TUNEFARM_FUZZ=100000`` sets how many of each; a line says what was sent. What CI sends is the same in each run;
``TUNEFARM_FUZZ_SEED=7`` draws others, so that a long run can be made in parts.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from api_process import running_api
from api_world import World
from app_farm import make_farm
from fuzzing import COUNT, MESSAGES, SLOWEST_SEC, RunningTime, Say, batches, fuzz
from gateway_process import FakeDevice, GatewayProcess, session_with
from hostile_device import CALL_FUNC, COPY_ACK, COPY_FROM, EXCEPTION, RETURN, SHUTDOWN, frame
from hypothesis import given
from hypothesis import strategies as st
from json_mutations import any_json
from pydantic import SecretStr

from tunefarm_api.app import create_app
from tunefarm_api.openapi import describe
from tunefarm_app.settings import Settings
from tunefarm_db.values import Step
from tunefarm_tuning.process.relay.frames import Answers, NotAnAnswerError, Requests
from tunefarm_tuning.process.tunnel import send_message

NO_RATES = {
    "TUNEFARM_KEY_RATE": "",
    "TUNEFARM_STRANGER_RATE": "",
    "TUNEFARM_ATTEMPT_RATE": "",
}
_HUNG_SEC = 600.0
_WORDS = st.sampled_from([0, 1, 2, 3, 8, 9, 11, 65, 66, 70, 1 << 31, (1 << 32) - 1, (1 << 64) - 1])
_CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.lists(_WORDS, max_size=8).map(lambda words: b"".join(struct.pack("<Q", word) for word in words)),
    st.lists(_WORDS, max_size=8).map(
        lambda words: b"".join(struct.pack("<I", word & 0xFFFFFFFF) for word in words)
    ),
)
_CODES = st.sampled_from([RETURN, EXCEPTION, COPY_ACK, SHUTDOWN, CALL_FUNC, COPY_FROM, *range(12), -1])
_TVM_FRAMES = st.one_of(
    st.builds(frame, _CODES, _CONTENTS),
    st.builds(lambda length, code, rest: struct.pack("<Qi", length, code) + rest, _WORDS, _CODES, _CONTENTS),
    st.binary(max_size=40),
)


def test_frames_of_a_device_at_the_relay(say: Say) -> None:
    """Each of a connection of its own, in pieces of any size: it passes whole, waits for more, or ends the session."""
    ends: Counter[str] = Counter()

    @fuzz
    @given(frames=batches(_TVM_FRAMES), requests=st.binary(max_size=40), cut=st.integers(1, 30))
    def send(frames: list[bytes], requests: bytes, cut: int) -> None:
        for sent in frames:
            asked = Requests()
            asked.take(memoryview(requests))
            answers, passed = Answers(asked), b""
            try:
                for begin in range(0, len(sent), cut):
                    for answer in answers.take(memoryview(sent)[begin : begin + cut]):
                        passed += bytes(answer)
            except NotAnAnswerError:
                ends["refused"] += 1
                continue
            assert sent.startswith(passed)
            if len(passed) >= 12:
                code = struct.unpack_from("<i", passed, 8)[0]
                assert code in (SHUTDOWN, RETURN, EXCEPTION, COPY_ACK)
            ends["passed" if passed else "waits"] += 1

    send()
    assert ends.total() >= COUNT
    assert ends["refused"] > ends["passed"]
    say(f"relay: {ends.total()} frames, {dict(ends)}")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with closing(GatewayProcess(tmp_path_factory.mktemp("farm") / "keys")) as process:
        yield process
        assert process.process.poll() is None


def test_frames_at_the_gateway_beside_a_session(gateway: GatewayProcess, say: Say) -> None:
    """From strangers, before and after TLS, and from devices. A session that a lease holds all the time is served to the end."""
    contexts = {
        "stranger": gateway.device_context("dev_3/key"),
        "device": gateway.device_context("dev_2/key"),
        "conversation": gateway.device_context("dev_4/key"),
    }
    sent, slowest, now = Counter[str](), 0.0, RunningTime()
    with (
        closing(FakeDevice(gateway, "dev_1/key")) as device,
        session_with(device, gateway.sign("dev_1/key", 1)) as (worker, there),
    ):

        @fuzz
        @given(role=st.sampled_from(["plain", *contexts]), frames=batches(MESSAGES))
        def send(role: str, frames: list[bytes]) -> None:
            nonlocal slowest
            began = now()
            connected = (
                socket.create_connection(("127.0.0.1", gateway.port), 60.0)
                if role == "plain"
                else gateway.dial(contexts[role])
            )
            with connected as connection, suppress(OSError):
                if role == "conversation":
                    send_message(connection, {"device": True})
                for data in frames:
                    sent[role] += 1
                    connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
            slowest = max(slowest, now() - began)
            worker.sendall(b"request")
            assert there.recv(7) == b"request"
            there.sendall(b"answer")
            assert worker.recv(6) == b"answer"

        send()
    assert gateway.process.poll() is None
    # A connection that says half a message is ended by the gateway's own time limit.
    assert slowest < 2 * SLOWEST_SEC
    say(
        f"gateway: {sent.total()} frames that were sent, {dict(sent)}; the slowest connection {slowest:.1f} s"
    )


def _operations() -> list[tuple[str, str]]:
    app = create_app(
        Settings(database_url="sqlite://", broker_url="redis://localhost", store_dir=Path("store"))
    )
    return [(method, path) for path, item in describe(app)["paths"].items() for method in item]


def _leases(world: World, step_id: str) -> tuple[Step, tuple[Any, ...]]:
    """Return who holds step and device; a device may say at any time that it has to be checked."""
    with world.farm.services.uow.read() as repos:
        device = repos.devices.get(world.device.id)
        return repos.steps.get(step_id), (device.lease_owner, device.fence, device.lease_until)


def _leased(world: World) -> str:
    """Put a worker in the middle of a job, with the device."""
    world.farm.submit(world.model, tuner="random", seed=9)
    step_id = world.farm.inbox.messages[-1]
    with world.farm.services.uow.write() as repos:
        assert repos.steps.claim(step_id, "a worker", 1e6) is not None
        assert repos.devices.lease("pool", "a worker", 1e6) is not None
    return step_id


_TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["..", "%2e%2e%2f", "\0", "a" * 3000, "-1", "null"]))
_BODIES = st.one_of(
    st.binary(max_size=200),
    any_json("name", "scopes", "state", "url", "kinds", "fence", "rpc_key", "device_key", "limits").map(
        lambda value: json.dumps(value).encode()
    ),
)


@pytest.mark.exhaustive
def test_requests_at_the_api_beside_a_worker(tmp_path: Path, say: Say) -> None:
    """Of strangers, and of keys that may read or be a device; what a worker and its device hold stays theirs."""
    folder = tmp_path / "farm"
    folder.mkdir()
    farm = make_farm(
        Settings(
            database_url=SecretStr(f"sqlite:///{folder / 'tunefarm.db'}"),
            broker_url=SecretStr("redis://127.0.0.1:1/0"),
            store_dir=folder / "store",
            engine="replay",
            stranger_rate="",
            attempt_rate="",
        )
    )
    world = World(farm)
    step_id = _leased(world)
    before = _leases(world, step_id)
    keys = {"stranger": "tfk_nobody_x", "read": world.keys["read"], "device": world.keys["device"]}
    statuses: Counter[int] = Counter()
    slowest, now = 0.0, RunningTime()
    request = st.tuples(
        st.sampled_from(["nobody", *keys]),
        st.sampled_from(_operations()),
        st.dictionaries(st.sampled_from(sorted(world.known)), _TEXTS, max_size=1),
        st.dictionaries(
            st.sampled_from(["limit", "cursor", "state", "text", "order", "odd"]), _TEXTS, max_size=2
        ),
        _BODIES,
        st.sampled_from(
            ["application/json", "application/octet-stream", "text/html", "application/json; charset=x"]
        ),
    )
    with (
        running_api(folder, **NO_RATES, TUNEFARM_DEVICE_STALE_SEC="1000000") as api,
        httpx.Client(base_url=api.url, timeout=_HUNG_SEC, trust_env=False) as client,
    ):

        @fuzz
        @given(requests=batches(request))
        def send(requests: list[tuple[Any, ...]]) -> None:
            nonlocal slowest
            for who, (method, path, odd, query, body, kind) in ((r[0], (*r[1], *r[2:])) for r in requests):
                values = {**world.known, **odd}
                for name, value in values.items():
                    path = path.replace(f"{{{name}}}", quote(str(value), safe="%"))
                headers = {"Content-Type": kind}
                if who in keys:
                    headers["Authorization"] = f"Bearer {keys[who]}"
                content = body if method not in ("get", "head") else None
                began = now()
                with client.stream(
                    method.upper(), path, params=query, headers=headers, content=content
                ) as answer:
                    # A stream of events has no end; its beginning is its answer.
                    if "event-stream" not in answer.headers.get("Content-Type", ""):
                        answer.read()
                took = now() - began
                slowest = max(slowest, took)
                statuses[answer.status_code] += 1
                assert took < SLOWEST_SEC, (who, method, path)
                assert answer.status_code < 500 or answer.status_code == 503, (who, method, path, body)

        send()
        assert _leases(world, step_id) == before
        assert client.get("/healthz").status_code == 200
        assert api.process.poll() is None
        assert api.stop() == 0
        assert "Traceback" not in api.log.read_text()
    farm.services.close()
    assert statuses.total() >= COUNT
    say(f"API: {statuses.total()} requests, {dict(sorted(statuses.items()))}; the slowest {slowest:.2f} s")
