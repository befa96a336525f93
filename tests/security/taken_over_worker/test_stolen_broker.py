"""Whoever has a worker's connection to the broker can stop no worker, and has nothing but the queues.

Before, a worker's URL was the API's: settings, scripts, all keys. And one message that was none ended the worker that took it: each that
was put into the queue ended another one, and what lay among the messages to be repeated ended all of them, again and again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from app_farm import Inbox
from farm_processes import Worker, free_port
from forged_messages import FORGED, NO_JSON, STEP, message
from migrated_database import upgrade
from parentage import die_with_parent
from repository import ROOT
from waiting import wait_until

from tunefarm.embedded.valkey import find_server
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.models.submit import submit_model
from tunefarm_app.runtime.composition import Services, compose
from tunefarm_app.runtime.dispatch import KEY_PREFIX, QUEUES
from tunefarm_app.settings import Settings
from tunefarm_db.values import Model, ModelState

PASSWORDS = {"VALKEY_PASSWORD": "of-the-api", "VALKEY_WORKER_PASSWORD": "of-workers"}
RATE = "tunefarm-rate/key/1"

ATTACKS: tuple[str, ...] = (
    "CONFIG GET requirepass",
    "CONFIG SET dir /tmp",
    "CONFIG SET requirepass mine",
    "CONFIG REWRITE",
    "ACL LIST",
    "ACL SETUSER worker allcommands allkeys",
    "ACL DELUSER default",
    "AUTH default of-workers",
    "MODULE LOAD /tmp/planted.so",
    "EVAL 'while true do end' 0",
    "SCRIPT LOAD 'return 1'",
    "SCRIPT KILL",
    "FUNCTION LOAD '#!lua name=mine\nserver.register_function(\"f\", function() end)'",
    "FCALL mine 0",
    "MONITOR",
    "CLIENT LIST",
    "CLIENT KILL TYPE normal",
    "CLIENT PAUSE 100000",
    "CLIENT NO-EVICT on",
    "DEBUG SLEEP 100",
    "SHUTDOWN NOSAVE",
    "REPLICAOF 127.0.0.1 1",
    "MIGRATE 127.0.0.1 1 tunefarm:import 0 1000",
    "CLUSTER RESET",
    "SAVE",
    "BGREWRITEAOF",
    "FLUSHALL",
    "FLUSHDB",
    "SWAPDB 0 1",
    "KEYS *",
    "SCAN 0",
    "INFO",
    "DBSIZE",
    "RANDOMKEY",
    f"GET {RATE}",
    f"SET {RATE} 0",
    f"DEL {RATE}",
    f"INCRBY {RATE} 1000000",
    f"EXPIRE {RATE} 1",
    "LPUSH mine x",
    "SET tunefarm:import x",
    "DEL tunefarm:import",
    "RENAME tunefarm:import mine",
    "HSET tunefarm:import a b",
    "SADD tunefarm:import a",
    "LPUSH tunefarm:unacked x",
    "LTRIM tunefarm:import 1 0",
    "LRANGE tunefarm:import 0 -1",
    "DUMP tunefarm:import",
    "RESTORE tunefarm:import 0 x REPLACE",
    "SUBSCRIBE tunefarm:x",
    "PSUBSCRIBE *",
    "PUBLISH __keyevent@0__:set x",
    "SORT tunefarm:import STORE mine",
    "COPY tunefarm:import mine",
    "OBJECT FREQ tunefarm:import",
    "MEMORY USAGE tunefarm:import",
    "SLOWLOG GET",
    "LATENCY RESET",
)


class Broker:
    """The compose file's Valkey."""

    def __init__(self, folder: Path) -> None:
        service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["valkey"]
        script = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", service["command"][-1]).replace("$$", "$")
        self.port = free_port()
        own = f"dir {folder}\nport {self.port}\nbind 127.0.0.1\n"
        (folder / "valkey-server").symlink_to(find_server())
        self._process = subprocess.Popen(
            ["sh", "-c", script.replace("dir /data\n", own)],
            env={**PASSWORDS, "PATH": f"{folder}:{os.environ['PATH']}"},
            stdout=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (it takes no lock)
        )
        wait_until(self._answers, "Valkey")

    def url(self, user: str) -> str:
        password = PASSWORDS["VALKEY_WORKER_PASSWORD" if user else "VALKEY_PASSWORD"]
        return f"redis://{user}:{password}@127.0.0.1:{self.port}/0"

    def client(self, user: str = "") -> redis.Redis:
        return redis.Redis.from_url(self.url(user), socket_timeout=10)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.ConnectionError), self.client() as client:
            return bool(client.ping())
        return False

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.close()


@pytest.fixture
def stolen(broker: Broker) -> Iterator[redis.Redis]:
    """A worker's connection."""
    with broker.client("worker") as client:
        yield client


def settings_of(folder: Path, broker_url: str) -> Settings:
    return Settings(
        database_url=f"sqlite:///{folder / 'farm.db'}",
        broker_url=broker_url,
        store_dir=folder / "store",
        engine="replay",
    )


@pytest.fixture
def api(broker: Broker, tmp_path: Path) -> Iterator[Services]:
    settings = settings_of(tmp_path, broker.url(""))
    upgrade(settings.database_url.get_secret_value())
    services = compose(settings)
    yield services
    services.close()


@pytest.fixture
def worker(broker: Broker, api: Services, tmp_path: Path) -> Iterator[Worker]:
    settings = api.settings
    environment = {
        "TUNEFARM_DATABASE_URL": settings.database_url.get_secret_value(),
        "TUNEFARM_BROKER_URL": broker.url("worker"),
        "TUNEFARM_STORE_DIR": str(settings.store_dir),
        "TUNEFARM_ENGINE": "replay",
    }
    worker = Worker(environment, tmp_path / "worker.log", "--concurrency=1")
    worker.wait_until_ready()
    yield worker
    if worker.process.poll() is None:
        worker.kill()
    with broker.client() as client:  # a killed worker may not have acknowledged its last message
        client.flushdb()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_worker_may_not(attack: str, broker: Broker, stolen: redis.Redis) -> None:
    with broker.client() as api:
        api.set(RATE, 7)
    words = [part.strip("'") for part in re.findall(r"'[^']*'|\S+", attack)]
    refused = (redis.AuthenticationError, redis.ResponseError)
    with pytest.raises(
        refused, match=r"(?i)no permissions|invalid username-password pair|command not allowed"
    ):
        stolen.execute_command(*words)
    with broker.client() as api:
        assert api.get(RATE) == b"7"


def test_nobody_gets_in_without_a_password(broker: Broker) -> None:
    for url in (
        f"redis://127.0.0.1:{broker.port}/0",
        f"redis://worker:of-the-api@127.0.0.1:{broker.port}/0",
    ):
        with redis.Redis.from_url(url) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_a_worker_outlives_what_is_no_message(
    broker: Broker, stolen: redis.Redis, worker: Worker, api: Services
) -> None:
    forged = [json.dumps(sent).encode() for sent in FORGED.values()]
    for sent in (*NO_JSON.values(), *forged):
        stolen.lpush(f"{KEY_PREFIX}import", sent)
    assert api.dispatcher.ping()
    wait_until_quiet(broker, worker)
    assert worker.process.poll() is None, worker.log[-3000:]
    assert worker.log.count("dropped bytes that are not a message") == len(NO_JSON) + len(forged)
    assert "broker lost" not in worker.log.lower()
    assert STEP not in worker.log
    assert imports_a_model(api, worker)


@pytest.mark.exhaustive
def test_a_worker_outlives_what_is_to_be_repeated(
    broker: Broker, stolen: redis.Redis, worker: Worker, api: Services
) -> None:
    """It is looked at every five seconds, by the first worker that comes by."""
    forged = {
        "no-json": b"junk",
        "no-text": b"\xff",
        "a-list": b"[1]",
        "no-message": b'[1, "", "import"]',
        "no-headers": b'[{}, "", "import"]',
        "a-queue-that-is-none": json.dumps([message(), {"a": 1}, ["b"]]).encode(),
        "deep": b"[" * 100_000,
        "forged": json.dumps([FORGED["a chain"], "", "import"]).encode(),
    }
    for tag, content in forged.items():
        stolen.hset(f"{KEY_PREFIX}unacked", tag, content)
        stolen.zadd(f"{KEY_PREFIX}unacked_index", {tag: 1})
    stolen.zadd(f"{KEY_PREFIX}unacked_index", {b"\xff\xfe": 1, "without-content": 1})
    wait_until_quiet(broker, worker)
    assert worker.process.poll() is None, worker.log[-3000:]
    assert imports_a_model(api, worker)


def test_a_message_that_was_not_acknowledged_comes_again(
    stolen: redis.Redis, worker: Worker, api: Services
) -> None:
    """Under the worker's own rights, which have no scripts."""
    inbox = Inbox()
    model = submitted(replace(api, dispatcher=inbox))
    (step_id,) = inbox.messages
    sent = message(body=[[step_id], {}, {"callbacks": None}], tag="lost")
    stolen.hset(f"{KEY_PREFIX}unacked", "lost", json.dumps([sent, "", "import"]))
    stolen.zadd(f"{KEY_PREFIX}unacked_index", {"lost": 1})
    wait_until(lambda: is_ready(api, model), lambda: worker.log[-3000:], every_sec=0.5)
    assert worker.process.poll() is None


def messages_left(broker: Broker) -> dict[str, Any]:
    """Return what waits in queues, and what is delivered and not acknowledged; empty if nothing does."""
    with broker.client() as api:
        left = {queue: api.lrange(f"{KEY_PREFIX}{queue}", 0, 3) for queue in QUEUES}
        left["unacked"] = api.zrange(f"{KEY_PREFIX}unacked_index", 0, 20, withscores=True)
        return {name: messages for name, messages in left.items() if messages}


def wait_until_quiet(broker: Broker, worker: Worker) -> None:
    wait_until(
        lambda: not messages_left(broker),
        lambda: f"an empty broker; left: {messages_left(broker)}; the worker's log: {worker.log[-3000:]}",
        every_sec=0.5,
    )


def imports_a_model(api: Services, worker: Worker) -> bool:
    """Let the worker import a model, sent as the API sends it."""
    model = submitted(api)
    wait_until(lambda: is_ready(api, model), lambda: worker.log[-3000:], every_sec=0.5)
    return True


def submitted(api: Services) -> Model:
    blob = api.blobs.put([Scenario(tasks=1).to_bytes()])
    return submit_model(api, name="net.onnx", blob=blob).model


def is_ready(api: Services, model: Model) -> bool:
    with api.uow.read() as repos:
        return repos.models.get(model.id).state is ModelState.READY
