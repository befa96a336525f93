from __future__ import annotations

import argparse

import pytest
from forged_messages import FORGED, message

from tunefarm_app.runtime.dispatch import CALIBRATE, KEY_PREFIX, QUEUES, RUN_STEP, queue_of
from tunefarm_app.runtime.step_limits import hard_limit_sec
from tunefarm_app.settings import Settings
from tunefarm_db.values import StepKind
from tunefarm_workers.celery_app import check_message, make_worker_app
from tunefarm_workers.worker import _queues


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(database_url="sqlite:///x.db", broker_url="redis://127.0.0.1:1/0", store_dir=tmp_path)


def test_a_killed_child_does_not_acknowledge_its_message(settings) -> None:
    conf = make_worker_app(settings).conf
    assert conf.task_acks_late is True
    assert conf.task_reject_on_worker_lost is True


def test_children_are_spawned(settings) -> None:
    conf = make_worker_app(settings).conf
    assert (conf.worker_pool, conf.worker_pool_start_method) == ("prefork", "spawn")
    assert conf.worker_proc_alive_timeout >= 60, "a fresh interpreter on a busy machine is not up at once"


@pytest.mark.parametrize("kind", FORGED)
def test_a_message_asks_for_a_step_and_nothing_else(kind: str) -> None:
    check_message(message())
    check_message(message(body=[["dev_x", 7], {}, {}], headers={"task": CALIBRATE}))
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        check_message(FORGED[kind])


def test_nothing_but_json(settings) -> None:
    conf = make_worker_app(settings).conf
    assert conf.task_serializer == "json"
    assert list(conf.accept_content) == ["json"]
    assert conf.result_backend is None
    assert conf.task_ignore_result is True


def test_the_brokers_patience_is_three_times_the_longest_step(settings) -> None:
    conf = make_worker_app(settings).conf
    longest = max(hard_limit_sec(settings, kind) for kind in StepKind)
    assert conf.task_time_limit == longest
    assert conf.task_soft_time_limit < conf.task_time_limit
    assert conf.visibility_timeout >= 3 * conf.task_time_limit
    assert conf.broker_transport_options["visibility_timeout"] == conf.visibility_timeout
    assert settings.lease_sec < conf.visibility_timeout, "the lease, not the broker, brings a step back"


def test_one_message_at_a_time(settings) -> None:
    assert make_worker_app(settings).conf.worker_prefetch_multiplier == 1


def test_the_broker_may_be_shared_and_may_go_away(settings) -> None:
    conf = make_worker_app(settings).conf
    assert conf.broker_transport_options["global_keyprefix"] == KEY_PREFIX
    assert conf.broker_transport_options["socket_timeout"] is not None
    assert conf.broker_connection_max_retries is None
    assert conf.worker_cancel_long_running_tasks_on_connection_loss is False


def test_workers_take_no_orders_from_the_broker(settings) -> None:
    assert make_worker_app(settings).conf.worker_enable_remote_control is False


def test_every_kind_of_step_has_a_queue(settings) -> None:
    names = {queue.name for queue in make_worker_app(settings).conf.task_queues}
    assert names == set(QUEUES) == {queue_of(kind) for kind in StepKind}


def test_the_tasks_have_the_names_that_are_sent(settings) -> None:
    app = make_worker_app(settings)
    app.loader.import_default_modules()
    app.finalize()
    ours = [name for name in app.tasks if not name.startswith("celery.")]
    assert sorted(ours) == [CALIBRATE, RUN_STEP]


def test_queues_by_name() -> None:
    assert _queues("tune, compile") == ["tune", "compile"]
    for text in ("", "tune,nope"):
        with pytest.raises(argparse.ArgumentTypeError):
            _queues(text)
