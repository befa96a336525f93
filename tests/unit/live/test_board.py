"""The board follows a run, and the views show it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tunefarm.cli.base.output import Output
from tunefarm.cli.progress_view import view
from tunefarm.client.results.jobs import Job
from tunefarm.client.results.models import Model
from tunefarm.live.bars import Bars
from tunefarm.live.board import Board, Phase, Status, budget_used


def job(state: str, **rest: Any) -> Job:
    return Job.read({"id": "job_1", "state": state, **rest})


def model(state: str) -> Model:
    ready = {"operators": [["Conv", 20], ["Relu", 17]], "num_params": 11_700_000} if state == "ready" else {}
    return Model.read({"id": "mdl_1", "state": state, **ready})


def tuning(trials: int, **rest: Any) -> Job:
    progress = {"phase": "tuning", "tasks_total": 4, "tasks_with_record": min(trials, 4)}
    budget = {"trials": 32, "wall_sec": 100.0}
    return job("tuning", trials=trials, budget=budget, progress=progress, **rest)


def test_a_paused_job_stays_in_its_phase() -> None:
    board = Board()
    board.on_job(tuning(8))
    progress = {"phase": "paused", "paused_in": "tuning", "tasks_total": 4, "tasks_with_record": 4}
    board.on_job(job("paused", trials=8, budget={"trials": 32}, progress=progress))
    tune = board.phases[Phase.TUNE]
    assert (tune.status, tune.fraction) == (Status.RUNNING, 0.25)
    assert tune.text.endswith(", paused")
    board.on_job(job("paused", progress={"phase": "paused", "paused_in": "compiling"}))
    assert board.phases[Phase.COMPILE].text == "paused"
    board.on_job(job("paused", progress={"phase": "paused"}))  # a server that does not say
    assert board.phases[Phase.COMPILE].status is Status.RUNNING


def test_a_job_that_waits_says_for_what() -> None:
    board = Board()
    board.on_model(
        Model.read(
            {"id": "mdl_1", "state": "importing", "waiting": "waiting for a worker: 3 imports before it"}
        )
    )
    assert board.phases[Phase.IMPORT].text == "waiting for a worker: 3 imports before it"
    board.on_model(model("importing"))
    assert board.phases[Phase.IMPORT].text == ""
    board.on_job(job("queued", waiting="waiting for a worker"))
    assert board.phases[Phase.EXTRACT].text == "waiting for a worker"
    board.on_job(tuning(8, waiting="waiting for a device of pool: 0 of 3 online"))
    assert board.phases[Phase.TUNE].text.endswith(", waiting for a device of pool: 0 of 3 online")
    board.on_job(job("compiling", waiting="waiting for a worker", progress={"phase": "compiling"}))
    assert board.phases[Phase.COMPILE].text == "waiting for a worker"


def test_a_run_from_upload_to_end() -> None:
    board = Board()
    states = board.phases
    board.on_upload(50, 100)
    assert (states[Phase.UPLOAD].status, states[Phase.UPLOAD].fraction) == (Status.RUNNING, 0.5)
    board.on_model(model("importing"))
    assert states[Phase.UPLOAD].status is Status.DONE
    assert (states[Phase.IMPORT].status, states[Phase.IMPORT].fraction) == (Status.RUNNING, None)
    board.on_model(model("ready"))
    assert states[Phase.IMPORT].status is Status.DONE
    assert states[Phase.IMPORT].text == "37 operators, 11.7 M parameters"
    board.on_job(job("queued"))
    assert (states[Phase.EXTRACT].status, states[Phase.EXTRACT].text) == (Status.RUNNING, "queued")
    board.on_job(tuning(8, failures=2, best_latency_sec=0.0123))
    assert states[Phase.EXTRACT].text == "4 kernels to tune"
    assert states[Phase.TUNE].fraction == 0.25
    assert states[Phase.TUNE].text == "8 trials, 2 failed, 4 of 4 kernels measured, best 12.3 ms (estimate)"
    board.on_job(
        job("compiling", trials=32, progress={"phase": "compiling", "step": "check-kernels", "done": 0.5})
    )
    assert states[Phase.TUNE].status is Status.DONE
    assert (states[Phase.COMPILE].text, states[Phase.COMPILE].fraction) == ("check kernels", 0.625)
    board.on_job(
        job("compiling", eta_sec=18.0, progress={"phase": "compiling", "step": "build-model", "done": 0.0})
    )
    assert board.text(Phase.COMPILE) == "build model, 18 s left"
    board.on_job(job("compiling", trials=32, progress={"phase": "compiling", "step": "measure", "done": 0.5}))
    assert states[Phase.COMPILE].status is Status.DONE
    assert (states[Phase.VERIFY].text, states[Phase.VERIFY].fraction) == ("measure", 0.375)
    assert states[Phase.COMPILE].text == "", "no step of a phase that ended, and no time left of it"
    board.on_job(job("succeeded", trials=32, failures=2))
    assert {state.status for state in states.values()} == {Status.DONE}
    assert states[Phase.VERIFY].text == ""


def test_a_run_that_ends_early() -> None:
    board = Board()
    board.on_model(model("ready"))
    board.on_job(tuning(8))
    board.on_job(job("failed"))
    assert board.phases[Phase.TUNE].status is Status.STOPPED
    assert board.phases[Phase.COMPILE].status is Status.WAITING


def test_what_an_import_waited_for_is_not_why_it_stopped() -> None:
    board = Board()
    board.on_model(Model.read({"id": "mdl_1", "state": "importing", "waiting": "waiting for a worker"}))
    board.on_model(model("failed"))
    state = board.phases[Phase.IMPORT]
    assert (state.status, state.text) == (Status.STOPPED, "")


def test_the_nearest_limit_counts() -> None:
    assert budget_used(tuning(8, tuned_sec=75.0)) == 0.75
    assert budget_used(tuning(64)) == 1.0
    assert budget_used(job("tuning", budget={"patience_trials": 9})) is None


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board()
    with view(Output(), board) as shown:
        board.on_model(model("ready"))
        shown.update()
        for trials in (1, 2, 3):
            board.on_job(tuning(trials))
            shown.update()
        board.on_job(job("failed"))
        shown.update()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "upload done",
        "import done: 37 operators, 11.7 M parameters",
        "extract done: 4 kernels to tune",
        "tune… 3.1 %: 1 trial, 0 failed, 1 of 4 kernels measured",
        "tune stopped: 3 trials, 0 failed, 3 of 4 kernels measured",
    ]


def test_a_phase_that_is_done_is_a_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board()
    with view(Output(), board) as shown:
        for state in (tuning(8), job("compiling", trials=8, progress={"step": "measure", "done": 0.5})):
            board.on_job(state)
            shown.update()
        board.on_job(job("succeeded", trials=8, network_latency_sec=0.001))
        shown.update()
    lines = capsys.readouterr().err.splitlines()
    assert [
        sum(line.startswith(f"{phase} done") for line in lines) for phase in ("tune", "compile", "verify")
    ] == [1, 1, 1]
    assert lines[-1] == "verify done"


def test_bars_on_a_terminal() -> None:
    output, board = Output(), Board()
    screen = io.StringIO()
    output.__dict__["stderr"] = Console(file=screen, force_terminal=True, width=120)
    bars = Bars(output.stderr, board, tuple(Phase))
    with bars.progress:
        board.on_model(model("ready"))
        board.on_job(tuning(8, best_latency_sec=0.0123))
        bars.update()
        board.on_job(job("compiling", best_latency_sec=0.0123, progress={"step": "\x1b[2J[red]builds"}))
        bars.update()
        board.on_job(job("failed"))
        bars.update()
    text = screen.getvalue()
    for phase in Phase:
        assert phase.value in text
    assert "best 12.3 ms (estimate)" in text
    assert "[red]builds" in text
    assert "\x1b[2J" not in text


def test_confirming_is_told() -> None:
    board = Board()
    board.on_job(tuning(8))
    assert "confirming" not in board.phases[Phase.TUNE].text
    board.on_job(job("tuning", trials=8, progress={"phase": "confirming"}))
    assert board.phases[Phase.TUNE].text.endswith("confirming the best configs")
