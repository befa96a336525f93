"""What a compile with a goal may spend on work that only refines its result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefarm_tuning.compiler.request import CompileRequest, Progress
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.records.history import History
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model


def with_goal(goal_sec: float | None, tmp_path: Path) -> CompileRequest:
    return CompileRequest(
        model=Model(
            path=tmp_path, sha256="0" * 64, inputs=(), outputs=(), operators=(), opset=17, num_params=0
        ),
        target=Target(kind="llvm"),
        history=History(()),
        device=None,
        name="net",
        baseline=True,
        limits=CompileLimits(),
        goal_sec=goal_sec,
        seed=0,
        folder=tmp_path,
        progress=Progress(lambda _phase, _done: None, Cancellation()),
        cancellation=Cancellation(),
    )


@pytest.mark.parametrize(("goal_sec", "spare_sec"), [(None, 30.0), (1000.0, 30.0), (5.0, 0.0), (0.0, 0.0)])
def test_work_that_refines_gets_what_the_goal_leaves(
    tmp_path: Path, goal_sec: float | None, spare_sec: float
) -> None:
    request = with_goal(goal_sec, tmp_path)
    assert request.spare_sec(30.0) == spare_sec
    assert request.spare_sec(30.0, ahead_sec=2000.0) == (30.0 if goal_sec is None else 0.0)


@pytest.mark.parametrize(
    ("goal_sec", "optional_sec"),
    [(None, None), (0.0, None), (2.0, 0.0), (1000.0, pytest.approx(997.0, abs=5))],
)
def test_what_an_artifact_can_do_without_gets_what_the_goal_leaves(
    tmp_path: Path, goal_sec: float | None, optional_sec: float | None
) -> None:
    """A goal of 0 is a compile in the middle of a search, which refines nothing and leaves nothing out."""
    assert with_goal(goal_sec, tmp_path).optional_sec == optional_sec
