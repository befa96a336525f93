"""Workers that have CUDA's compiler say so, and take what others pass on."""

from __future__ import annotations

from pathlib import Path

import redis
from fake_nvcc import fake_nvcc
from waiting import wait_until

from tunefarm_app.dispatch import KEY_PREFIX, CeleryDispatcher
from tunefarm_app.replay_engine import Scenario
from tunefarm_app.submit_model import submit_model
from tunefarm_db.values import ModelState, StepKind


def test_what_was_said_is_believed_for_a_while(settings, broker) -> None:
    dispatcher = CeleryDispatcher(settings, rest_sec=0.0)
    assert not dispatcher.has_gpu_builder()
    assert dispatcher.announce_gpu_builder()
    assert dispatcher.has_gpu_builder()
    with redis.Redis.from_url(broker.url) as client:
        (key,) = client.keys("*builder*")
        assert key.decode().startswith(KEY_PREFIX)
        assert 0 < client.pttl(key) <= 60_000
        client.delete(key)
    assert not dispatcher.has_gpu_builder()
    broker.kill()
    assert not dispatcher.announce_gpu_builder()
    assert not dispatcher.has_gpu_builder()
    dispatcher.close()


def test_a_worker_with_the_compiler_takes_what_others_pass_on(
    farm, start_worker, environment, settings, tmp_path: Path
) -> None:
    environment["CUDA_HOME"] = str(fake_nvcc(tmp_path / "cuda" / "bin").parent.parent)
    worker = start_worker("--queues", "import", "--concurrency", "1")
    worker.wait_until_ready()
    wait_until(farm.services.dispatcher.has_gpu_builder, "the worker to say that it has the compiler")
    # Past its own queue, as a worker without the compiler does.
    farm.services.dispatcher.send = lambda *_, **__: False  # the reconciler's way is shut
    blob = farm.services.blobs.put([Scenario().to_bytes()])
    model = submit_model(farm.services, name="net.onnx", blob=blob).model
    with farm.services.uow.read() as repos:
        step = repos.steps.find(StepKind.IMPORT, model.id, 0)
    assert step is not None
    sender = CeleryDispatcher(settings)
    assert sender.queue_length(StepKind.IMPORT, builds_for_gpus=True) == 0
    assert sender.send(step.id, StepKind.IMPORT, builds_for_gpus=True)
    wait_until(lambda: farm.model(model.id).state is ModelState.READY, "the worker to take it")
    sender.close()
