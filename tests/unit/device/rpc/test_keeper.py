"""The keeper's decisions, on a test clock."""

from __future__ import annotations

from typing import Any

from tunefarm_workers.device.rpc.keeper import ServerKeeper, ServerState


class ScriptedServer:
    """A server with the events that the test gives it."""

    pid = 1

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = [{"event": "listening", "port": 4711}]
        self.code: int | None = None
        self.ended_with_grace: float | None = None

    def exit_code(self) -> int | None:
        return self.code

    def events(self) -> list[dict[str, Any]]:
        events, self.told = self.told, []
        return events

    def end(self, *, grace_sec: float) -> None:
        self.ended_with_grace = grace_sec


class Scene:
    """A keeper, its clock, its servers, and the results of probes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.servers: list[ScriptedServer] = []
        self.found: tuple[bool, bool] = (True, True)
        self.fails_to_start = False
        self.keeper = ServerKeeper(self._start, lambda: self.found, clock=lambda: self.now, probe_sec=1.0)

    def _start(self) -> ScriptedServer:
        if self.fails_to_start:
            raise OSError("no more processes")
        self.servers.append(ScriptedServer())
        return self.servers[-1]

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            self.keeper.tick()
            self.now += 0.25


def test_a_proven_server_serves() -> None:
    scene = Scene()
    scene.run(2)
    assert scene.keeper.state is ServerState.SERVING
    assert scene.keeper.reason == ""
    assert scene.keeper.restarts == 0


def test_a_server_that_ends_is_started_again() -> None:
    scene = Scene()
    scene.run(2)
    scene.servers[0].code = -9
    scene.run(0.5)
    assert scene.keeper.state is ServerState.STOPPED
    assert "code -9" in scene.keeper.reason
    scene.run(2)
    assert scene.keeper.state is ServerState.SERVING
    assert scene.keeper.restarts == 1


def test_a_server_without_proof_is_ended_without_grace() -> None:
    scene = Scene()
    scene.run(2)
    scene.found = (False, True)
    scene.run(3)
    assert scene.keeper.state is ServerState.SUSPECT
    assert scene.keeper.reason == "the RPC server does not answer"
    scene.run(10)
    assert scene.servers[0].ended_with_grace == 0.0
    assert len(scene.servers) == 2


def test_an_absent_gateway_is_waited_for() -> None:
    scene = Scene()
    scene.run(2)
    scene.found = (True, False)
    scene.run(600)
    assert scene.keeper.state is ServerState.SUSPECT
    assert scene.keeper.reason == "the gateway does not answer"
    assert len(scene.servers) == 1
    scene.found = (True, True)
    scene.run(2)
    assert scene.keeper.state is ServerState.SERVING


def test_restarts_become_rarer() -> None:
    scene = Scene()

    def always_dying(seconds: float) -> int:
        before = len(scene.servers)
        for _ in range(int(seconds * 4)):
            scene.keeper.tick()
            if scene.keeper.server_pid is not None:
                scene.servers[-1].code = 1
            scene.now += 0.25
        return len(scene.servers) - before

    assert always_dying(10) > 2
    always_dying(120)
    assert always_dying(100) <= 4


def test_a_calm_minute_makes_restarts_quick_again() -> None:
    scene = Scene()
    for _ in range(6):
        scene.run(40)
        scene.servers[-1].code = 1
    scene.run(110)
    count = len(scene.servers)
    scene.servers[-1].code = 1
    scene.run(2)
    assert len(scene.servers) == count + 1


def test_a_start_that_fails_is_tried_again() -> None:
    scene = Scene()
    scene.fails_to_start = True
    scene.run(5)
    assert "no more processes" in scene.keeper.reason
    scene.fails_to_start = False
    scene.run(10)
    assert scene.keeper.state is ServerState.SERVING


def test_stopping_gives_the_server_time() -> None:
    scene = Scene()
    scene.run(2)
    scene.keeper.stop()
    ended = scene.servers[0].ended_with_grace
    assert ended is not None
    assert ended > 0
