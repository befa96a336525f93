"""Errors become sentences and exit codes."""

from __future__ import annotations

import errno
import json
import os
import signal

import pytest

from tunefarm.cli.base import edge
from tunefarm.cli.base.exit_codes import exit_code
from tunefarm.cli.base.output import Output
from tunefarm.client import ClientError, InvalidRequestError, JobFailedError, NotFoundError, WaitTimeoutError
from tunefarm_tuning.core.errors import (
    InvalidInputError,
    InvalidModelError,
    InvariantError,
    TransientError,
    TunefarmError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidModelError("x"), 2),
        (InvalidRequestError("x", code="c"), 2),
        (NotFoundError("x", code="c"), 3),
        (TransientError("x"), 4),
        (WaitTimeoutError("x", code="c"), 4),
        (JobFailedError("x", code="c"), 1),
        (ClientError("x", code="c"), 1),
        (TunefarmError("x"), 1),
        (InvariantError("x"), 70),
        (ValueError("x"), 70),
        (FileNotFoundError("x"), 2),
        (OSError(errno.ENOSPC, "disk full"), 1),
        (ModuleNotFoundError("x", name="tvm"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def failing(error: BaseException) -> None:
    raise error


def test_a_message_of_several_lines_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    error = TransientError("the api ended. Its log ends with:\nthe port is \x1b[31mtaken")
    assert edge.run(Output(), lambda: failing(error)) == 4
    assert capsys.readouterr().err == (
        "error: the api ended. Its log ends with:\nthe port is \\x1b[31mtaken\n"
    )


def test_a_bug_of_the_server_comes_with_what_its_log_is_searched_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for code, expected in (("internal", "error: x\nrequest_id: 7f\n"), ("bad-budget", "error: x\n")):
        error = ClientError("x", code=code, fields={"request_id": "7f"})
        edge.run(Output(), lambda error=error: failing(error))  # type: ignore[misc]
        assert capsys.readouterr().err == expected


def test_an_expected_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = InvalidInputError("the name \x1b[31m[bold]x[/bold] is wrong", code="bad-name", limit=3)
    assert edge.run(Output(), lambda: failing(error)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: the name \\x1b[31m[bold]x[/bold] is wrong\n"
    assert edge.run(Output(json=True), lambda: failing(error)) == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == {"error": {"code": "bad-name", "message": error.message, "limit": 3}}
    assert err.startswith("error: ")


def test_a_bug_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert edge.run(Output(), lambda: failing(KeyError("k"))) == 70
    err = capsys.readouterr().err
    assert "a bug in tunefarm" in err
    assert "Traceback" not in err
    assert edge.run(Output(debug=True), lambda: failing(KeyError("k"))) == 70
    assert "Traceback" in capsys.readouterr().err


def test_what_is_not_installed_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    error = ModuleNotFoundError("No module named 'tvm.rpc'", name="tvm.rpc")
    assert edge.run(Output(), lambda: failing(error)) == 2
    assert "pip install 'tunefarm[run]'" in capsys.readouterr().err


def test_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert edge.run(Output(), lambda: failing(FileNotFoundError(2, "No such file or directory", "/x"))) == 2
    assert capsys.readouterr().err == "error: /x: No such file or directory\n"


def test_interrupts_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert edge.run(Output(), lambda: failing(KeyboardInterrupt())) == 130
    assert edge.run(Output(), lambda: failing(edge.Exit(7))) == 7
    assert edge.run(Output(), lambda: None) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "the terminal was closed")],
)
def test_signals_unwind_the_stack(
    number: int, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cleaned: list[bool] = []

    def ended() -> None:
        try:
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 60)
        finally:
            cleaned.append(True)

    before = signal.getsignal(number)
    assert edge.run(Output(), ended) == code
    assert cleaned == [True]
    assert signal.getsignal(number) is before
    assert capsys.readouterr().err == f"{said}\n"


def test_what_nohup_started_goes_on() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert edge.run(Output(), lambda: os.kill(os.getpid(), signal.SIGHUP)) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
