"""Config spaces and tasks without TVM, for tests of search, scheduling and storage."""

from __future__ import annotations

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import Failure, MeasureOption
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.measure.runner.replay import ReplayRunner
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.task import TuningTask, Workload


def conv_space() -> ConfigSpace:
    """Return a space in the manner of a 3×3 convolution on a CPU: two sketches, 10^8 configs."""
    tiles = tuple(Knob.tile(f"tile_{i}", extent, 4, 64) for i, extent in enumerate((1, 56, 56, 64)))
    reduce = tuple(Knob.tile(f"reduce_{i}", extent, 2, 64) for i, extent in enumerate((3, 3, 64)))
    base = (*tiles, *reduce, Knob.categorical("unroll", (0, 16, 64, 512), (0.25, 0.25, 0.25, 0.25)))
    return ConfigSpace([Sketch((*base, Knob.location("write", (-1, 0, 3, 5, 7, 9)))), Sketch(base)])


def tiny_space() -> ConfigSpace:
    """Return a space of 18 configs and three sketches, one of them without any knob."""
    return ConfigSpace(
        [
            Sketch((Knob.tile("t", 12, 2, 6), Knob.location("l", (-2, -1, 4)))),
            Sketch(()),
            Sketch((Knob.categorical("c", (0, 8), (0.9, 0.1)),)),
        ]
    )


def synthetic_task(name: str = "conv", *, flops: float = 1e8, weight: int = 1) -> TuningTask:
    """Return a task whose workload is only a name."""
    workload = Workload(key=f"synthetic-{name}", name=name, flops=flops, args=(), ir="{}")
    return TuningTask(
        workload=workload, target=Target(kind="llvm", attributes=(("num-cores", 2),)), weight=weight
    )


def synthetic_measure_option(
    spaces: dict[str, ConfigSpace], *, seed: int = 0, failing: float = 0.0, shares_host: bool = True
) -> MeasureOption:
    """Return a builder and a runner that make up a landscape for each workload.

    Args:
        spaces: Config space by workload key.
        seed: Seed of the landscapes.
        failing: Share of configs that fail, half of them when built.
        shares_host: Whether the device is this machine.
    """
    landscapes = {
        key: SyntheticLandscape(space, seed=seed + number, failing=failing / 2)
        for number, (key, space) in enumerate(spaces.items())
    }
    bad_builds = {
        key: SyntheticLandscape(
            space, seed=seed + 1000 + number, failing=failing / 2, outcomes=(Outcome.BUILD_ERROR,)
        )
        for number, (key, space) in enumerate(spaces.items())
    }

    def fail(task: TuningTask, config: Config) -> Failure | None:
        answer = bad_builds[task.workload.key](task, config)
        return answer if isinstance(answer, Failure) else None

    return MeasureOption(
        builder=ReplayBuilder(spaces, fail=fail),
        runner=ReplayRunner(
            lambda task, config: landscapes[task.workload.key](task, config), shares_host=shares_host
        ),
    )
