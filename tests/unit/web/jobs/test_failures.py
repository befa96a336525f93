"""Failures in groups of like messages, counted, with the newest as the example."""

from __future__ import annotations

from tunefarm_api.web.jobs.failures import MOST_CHARACTERS, MOST_GROUPS, group_failures
from tunefarm_db.repositories.records.searches import FailedTrial


def failed(message: str, *, outcome: str = "run-error", number: int = 0) -> FailedTrial:
    return FailedTrial(
        outcome=outcome, message=message, round=number, config_key=f"[0,[{number}]]", measured_at=1.8e9
    )


def test_messages_that_differ_in_numbers_are_one() -> None:
    trials = [
        failed("config [2,[[1,1],[4,-1]]] does not apply: too many threads (2048)", number=3),
        failed("config [0,[[8,8],[1,2]]] does not apply: too many threads (4096)", number=2),
        failed("config [0,[[8,8],[1,2]]] does not apply: too many threads (4096)", number=1),
        failed("it died at 0xdeadbeef in /tmp/a1b2/x.so"),
        failed("it died at 0x7f00 in /tmp/c3d4/x.so"),
        failed("it died at 0x7f00 in /tmp/c3d4/x.so", outcome="run-crash"),
    ]
    failures = group_failures(trials, 10)
    assert [(group.outcome, group.count, group.variants) for group in failures.groups] == [
        ("run-error", 3, 2),
        ("run-error", 2, 2),
        ("run-crash", 1, 1),
    ]
    assert failures.groups[0].example.endswith("too many threads (2048)"), "the newest is the example"
    assert failures.groups[0].newest.round == 3
    assert (failures.more, failures.looked_at, failures.in_all) == (0, 6, 10)


def test_hostile_and_endless_messages() -> None:
    failures = group_failures([failed("\x1b[31m\n" + "1" * 10**6 + "<b>" * 10**5), failed("")], 2)
    assert failures.groups[0].example.isprintable()
    assert len(failures.groups[0].example) < MOST_CHARACTERS + 50
    assert failures.groups[1].example == ""


def test_the_rest_is_counted() -> None:
    failures = group_failures([failed("x" * number) for number in range(1, MOST_GROUPS + 6)], 17)
    assert len(failures.groups) == MOST_GROUPS
    assert failures.more == 5
