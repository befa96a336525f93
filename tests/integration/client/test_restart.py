"""A wait outlasts the server that it began with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from farm_processes import free_port
from replay_server import replay_server
from waiting import wait_until

from tunefarm.client import Client, ClientError, Job, RetryPolicy

QUICK = RetryPolicy(attempts=2, base_sec=0.01, cap_sec=0.02)


def test_a_job_is_waited_for_while_the_api_is_restarted(tmp_path: Path) -> None:
    seen: list[Job] = []
    away: list[ClientError] = []
    port = free_port()
    with ThreadPoolExecutor(1) as thread:
        with replay_server(tmp_path, port=port) as server:
            server.add_device()
            file = server.write_model(tmp_path / "net.onnx", tasks=1, trial_sec=0.01)
            key = server.api_key
            with Client(server.url, key) as client:
                job = client.tune(file, trials=5000)
                job.pause()
                # A client of its own: one thread at a time may use one.
                other = Client(server.url, key, retry=QUICK).job(job.id)
                waiting = thread.submit(other.wait, seen.append, poll_sec=0.05, on_away=away.append)
                wait_until(lambda: seen, "a look at the job")
        wait_until(lambda: away or waiting.done(), "a look that the server did not answer")
        assert not waiting.done()
        with replay_server(tmp_path, port=port) as server:
            with Client(server.url, key) as client:
                client.jobs.change(job.id, trials=24)
                client.jobs.resume(job.id)
            assert waiting.result(300).state == "succeeded"
    assert {error.code for error in away} <= {"unreachable", "connection-lost", "http-503"}
