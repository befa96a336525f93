from __future__ import annotations

from waiting import wait_until

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.models.removal import delete_model, sweep_blobs
from tunefarm_app.operations.reconcile import Reconciler, send_due
from tunefarm_db.states.job import JobState
from tunefarm_db.values import DeviceState, ModelState


def test_what_could_not_be_sent_is_sent_later(farm) -> None:
    farm.inbox.up = False
    model = farm.upload(Scenario())
    assert farm.inbox.messages == []
    assert send_due(farm.services, resend_after_sec=0) == 0  # the broker is still away
    farm.inbox.up = True
    assert send_due(farm.services, resend_after_sec=0) == 1
    farm.run()
    assert farm.model(model.id).state is ModelState.READY


def test_what_was_just_sent_is_not_sent_again(farm) -> None:
    farm.upload(Scenario())
    assert send_due(farm.services) == 0


def test_a_message_that_still_waits_is_not_doubled(farm) -> None:
    farm.upload(Scenario())
    for _ in range(3):
        assert send_due(farm.services, resend_after_sec=0) == 0
    assert len(farm.inbox.messages) == 1
    farm.inbox.messages.clear()  # the broker lost it
    assert send_due(farm.services, resend_after_sec=0) == 1


def test_a_message_twice_is_harmless(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    job = farm.submit(model, trials=8)
    farm.inbox.messages *= 3
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert len(farm.trials(job.id)) == 8


def test_a_step_that_is_not_there_is_no_error(farm) -> None:
    farm.inbox.messages.append("stp_nope")
    farm.run()


def test_devices_that_fall_silent_go_offline(farm) -> None:
    device = farm.add_device()
    Reconciler(farm.services).tick()
    assert farm.device(device.id).state is DeviceState.ONLINE
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE devices SET last_seen_at = 0")
    Reconciler(farm.services).tick()
    assert farm.device(device.id).state is DeviceState.OFFLINE


def test_a_job_that_was_asked_to_stop_is_stopped(farm) -> None:
    model = farm.ready_model()
    farm.add_device()
    job = farm.submit(model)
    with farm.services.uow.write() as repos:
        repos.jobs.request_cancel(job.id)
    Reconciler(farm.services).tick()
    assert farm.job(job.id).state is JobState.CANCELLED


def test_the_thread_ticks_until_it_is_stopped(farm) -> None:
    farm.inbox.up = False
    farm.upload(Scenario())
    farm.inbox.up = True
    reconciler = Reconciler(farm.with_settings().services, every_sec=0.01)
    # The upload noted its step as sent; that it was not is found out a few seconds later.
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE steps SET sent_at = 0")
    reconciler.start()
    wait_until(lambda: farm.inbox.messages, "the step to be sent", every_sec=0.01)
    reconciler.stop()
    assert len(farm.inbox.messages) == 1
    assert reconciler.last_tick_at is not None


def test_many_reconcilers_do_no_harm(farm) -> None:
    model = farm.ready_model()
    farm.add_device()
    job = farm.submit(model, trials=16)
    copies = [Reconciler(farm.services, every_sec=0.001) for _ in range(3)]
    for copy in copies:
        copy.start()
    farm.run()
    for copy in copies:
        copy.stop()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert len(farm.trials(job.id)) == 16


def test_the_sweep_takes_what_nobody_needs(farm) -> None:
    kept = farm.ready_model(Scenario(seed=1))
    deleted = farm.ready_model(Scenario(seed=2))
    orphan = farm.services.blobs.put([b"never registered"])
    farm.add_device()
    job = farm.submit(kept, trials=8)
    farm.run()
    delete_model(farm.services, deleted.id)
    assert not farm.services.blobs.path_of(deleted.sha256).exists()
    assert sweep_blobs(farm.services) == 0  # all of it is young
    assert sweep_blobs(farm.services, temporary_age_sec=-1, unreferenced_age_sec=-1) == 1
    left = set(farm.services.blobs.older_than(-1))
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(job.id)
    assert left == {kept.sha256, artifact.sha256}
    assert orphan.sha256 not in left
    # The same bytes can come back.
    assert farm.ready_model(Scenario(seed=2)).state is ModelState.READY
