"""The builder and the runner of a replay farm: nothing is compiled or run, and each task's results are simulated or recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tunefarm_app.engines.recorded_tasks import replayed
from tunefarm_app.engines.replay_sessions import SessionRunner
from tunefarm_app.engines.simulated_tasks import scenario_space, task_facts
from tunefarm_db.values import Device
from tunefarm_tuning.core.cancellation import Cancellation, Closing
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import (
    BuildInput,
    BuildResult,
    DeviceInfo,
    Failure,
    MeasureOption,
    MeasureResult,
    Runner,
)
from tunefarm_tuning.measure.runner.replay import Answer, ReplayRunner
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask


@contextmanager
def replay_measuring(
    device: Device, answer: Answer, remote: RemoteDevice | None, *, cancellation: Cancellation
) -> Iterator[MeasureOption]:
    """Open a builder and a runner.

    Args:
        device: The device that the results are said to be of.
        answer: Returns the result of a task that was not recorded.
        remote: How the device is reached; a session is opened on it before each batch. None opens none.
        cancellation: Ends the waiting.
    """
    info = DeviceInfo(model=device.device_model, num_cores=1, name=device.name)
    ended = _Ended()

    def measure(task: TuningTask, config: Config) -> tuple[float, ...] | Failure | MeasureResult:
        known = replayed(task.workload.key, task.workload.ir)
        if known is not None:
            return known.recording.measure(task, config)
        ended.wait(task_facts(task)["trial_sec"])
        return answer(task, config)

    with ExitStack() as stack:
        stack.enter_context(cancellation.attach(ended))
        builder = stack.enter_context(_ScenarioBuilder(ended.wait))
        answers = stack.enter_context(ReplayRunner(measure, device=info, wait=ended.wait))
        runner: Runner = answers
        if remote is not None:
            runner = stack.enter_context(SessionRunner(remote, answers))
            stack.enter_context(cancellation.attach(runner))
        yield MeasureOption(builder=builder, runner=runner)


class _Ended(threading.Event):
    """Waits, but not beyond the step's cancellation."""

    close = threading.Event.set


class _ScenarioBuilder(Closing):
    """Implements `Builder`: one `ReplayBuilder` per workload."""

    def __init__(self, wait: Callable[[float], object]) -> None:
        self._wait = wait
        self._builders: dict[str, ReplayBuilder] = {}

    @property
    def workers(self) -> int:
        return 1

    def config_space(self, task: TuningTask) -> ConfigSpace:
        return self._of(task).config_space(task)

    def build(self, inputs: Sequence[BuildInput]) -> list[BuildResult]:
        return [result for _, result in self.build_each(inputs)]

    def build_each(self, inputs: Sequence[BuildInput]) -> Generator[tuple[int, BuildResult], None, None]:
        for number, build_input in enumerate(inputs):
            yield number, self._of(build_input.task).build([build_input])[0]

    def _of(self, task: TuningTask) -> ReplayBuilder:
        key = task.workload.key
        if key not in self._builders:
            known = replayed(key, task.workload.ir)
            self._builders[key] = ReplayBuilder(
                {key: scenario_space(task)},
                recorded=None if known is None else known.recording.build,
                wait=self._wait,
            )
        return self._builders[key]

    def close(self) -> None:
        for builder in self._builders.values():
            builder.close()
