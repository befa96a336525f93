"""Requests of somebody with a key, made to keep a process of the API from everybody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm, farm_settings, make_farm
from sqlalchemy import event
from tuning_records import RECORD

from tunefarm_app.records.importing import import_records
from tunefarm_app.records.search import parse_shape
from tunefarm_db.acting import Acting, act_as
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.records.record import CONFIRMED

# Time is the attack: without an end of its own, this test would last as long as the API would stand still.
SEARCH = "import sys; from tunefarm_app.records.search import parse_shape; parse_shape(sys.argv[1])"


@pytest.mark.matrix(every=4, each_value=False)
@pytest.mark.parametrize("gap", ["   ", " " * 60, " , ", "\t" * 20])
def test_a_search_by_shape_never_holds_the_process(gap: str) -> None:
    """Before, 15 gaps of three spaces took 2 s, of 60 spaces for ever: each space could be the separator, and Python's `re` holds all threads."""
    text = "1" + f"{gap}1" * 15 + f"{gap}y"
    ran = subprocess.run([sys.executable, "-c", SEARCH, text], capture_output=True, text=True, timeout=60)
    assert "bad-shape" in ran.stderr or "is not a shape" in ran.stderr


@pytest.mark.parametrize(
    "text",
    ["1x56x56x64", "[1, 56, 56, 64]", "1 56 56 64", " 1×56 * 56,64 ", "1  56\t56 64", "[ 1x56x56x64 ]"],
)
def test_shapes_are_read_as_before(text: str) -> None:
    assert parse_shape(text) == (1, 56, 56, 64)


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    farm = make_farm(farm_settings(tmp_path))
    yield farm
    farm.services.close()


@pytest.mark.parametrize("keep_unknown", [False, True])
def test_an_import_of_unknown_workloads_asks_for_none_of_them(farm: Farm, *, keep_unknown: bool) -> None:
    """Before, three questions for each: of the 64 MiB that an import may have, while nobody else could write to SQLite."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    records = [
        (n, replace(RECORD, workload_key=f"unknown-{n}", extra={CONFIRMED: n % 2 == 0})) for n in range(2000)
    ]
    event.listen(farm.services.uow.engine, "before_cursor_execute", note)
    answer = import_records(farm.services, records, keep_unknown=keep_unknown)
    assert answer.imported == (2000 if keep_unknown else 0)
    assert len(statements) < 100
    statements.clear()
    again = import_records(farm.services, records, keep_unknown=True)
    assert again.left_out == ({"on-record": 2000} if keep_unknown else {})
    assert len(statements) < 100


def test_an_idempotency_key_leads_to_nobody_elses_job(farm: Farm) -> None:
    """Before, who sent the same request got a job that is another key's, by whose limits it is counted, and its id in any case."""
    farm.add_device()
    model = farm.ready_model()
    with act_as(Acting(via="api", key_id="a", owner="a")):
        first = farm.submit(model, trials=8, key="nightly")
        assert farm.submit(model, trials=8, key="nightly").id == first.id
    for trials in (8, 9):
        with act_as(Acting(via="api", key_id="b", owner="b")), pytest.raises(ConflictError) as caught:
            farm.submit(model, trials=trials, key="nightly")
        assert (caught.value.code, caught.value.fields) == ("idempotency-key-reused", {})
