"""Tuning records: JSON lines in, JSON lines out."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.core.errors import InvalidRecordError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.record import TuningRecord, load_records
from tunefarm_tuning.records.selection import pick_best
from tunefarm_tuning.space.config import Config

RECORD = TuningRecord(
    workload_key="w",
    target_key="llvm -num-cores=2",
    device_model="some-cpu",
    toolchain="tvm-1",
    space_key="s",
    config=Config(0, ((4, 2), -1)),
    outcome=Outcome.OK,
    samples_sec=(3e-3, 1e-3, 2e-3),
    build_sec=0.5,
    measured_at=1.5e9,
    tuner="xgb",
)

texts = st.text(max_size=30)
times = st.floats(1e-12, 1e6)
decisions = st.integers(-2, 2**40) | st.lists(st.integers(1, 2**31), max_size=5).map(tuple)
configs = st.builds(Config, st.integers(0, 9), st.lists(decisions, max_size=6).map(tuple))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
failed = st.sampled_from([o for o in Outcome if o is not Outcome.OK]).map(lambda o: (o, ()))
measured = st.lists(times, min_size=1, max_size=5).map(lambda s: (Outcome.OK, tuple(s)))


@st.composite
def records(draw: st.DrawFn) -> TuningRecord:
    outcome, samples = draw(failed | measured)
    return TuningRecord(
        workload_key=draw(texts),
        target_key=draw(texts),
        device_model=draw(texts),
        toolchain=draw(texts),
        space_key=draw(texts),
        config=draw(configs),
        outcome=outcome,
        samples_sec=samples,
        build_sec=draw(times),
        measured_at=draw(times),
        tuner=draw(texts),
        message=draw(texts),
        extra=draw(st.dictionaries(texts, json_values, max_size=3)),
    )


@given(records())
def test_a_record_survives_its_json_line(record: TuningRecord) -> None:
    line = record.to_json()
    assert "\n" not in line
    assert TuningRecord.from_json(line) == record
    assert TuningRecord.from_json(line).to_json() == line


def test_a_line_names_the_kernel_and_its_shapes_for_people() -> None:
    named = replace(RECORD, kernel="fused_matmul", shapes="64x64, 64x64 -> 64x64 float32")
    line = json.loads(named.to_json())
    assert (line["kernel"], line["shapes"]) == ("fused_matmul", "64x64, 64x64 -> 64x64 float32")
    read = TuningRecord.from_json(named.to_json())
    assert (read.kernel, read.shapes) == (named.kernel, named.shapes)
    assert read == RECORD, "names do not tell records apart"
    assert not {"kernel", "shapes"} & json.loads(RECORD.to_json()).keys()


def test_a_line_says_where_a_measurement_comes_from_if_that_is_known() -> None:
    record = replace(RECORD, certificate_sha256="0a" * 32, ticket_jti="t1")
    read = TuningRecord.from_json(record.to_json())
    assert (read.certificate_sha256, read.ticket_jti) == ("0a" * 32, "t1")
    assert read == RECORD, "it is the same measurement"
    assert "ticket_jti" not in json.loads(RECORD.to_json())
    line = json.dumps({**json.loads(RECORD.to_json()), "certificate_sha256": None, "ticket_jti": None})
    assert TuningRecord.from_json(line).ticket_jti is None


@given(configs)
def test_a_config_survives_json_and_its_key_tells_it_apart(config: Config) -> None:
    again = Config.from_json(json.loads(json.dumps(config.to_json())))
    assert again == config
    assert again.key == config.key
    assert Config(config.sketch + 1, config.decisions).key != config.key


@pytest.mark.parametrize(
    "data", [[], [0], ["0", []], [0, 3], [0, ["x"]], [0, [[1, "x"]]], [0, [1.5]], [0, [], 1]]
)
def test_what_is_no_config_is_refused(data: list[object]) -> None:
    with pytest.raises(ValueError, match="not a"):
        Config.from_json(data)


def test_the_cost_is_the_median() -> None:
    assert RECORD.cost_sec == 2e-3
    assert replace(RECORD, outcome=Outcome.RUN_ERROR, samples_sec=()).cost_sec is None


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(RECORD.to_json()), **fields})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "no JSON "),
        ("[]", "no JSON object"),
        ("{}", "not a tuning record: it has no 'version'"),
        (changed(version=99), "version 99"),
        (changed(outcome="great"), "great"),
        (changed(samples_sec=[]), "samples_sec"),
        (changed(samples_sec=[0.0]), "samples_sec"),
        (changed(samples_sec=[float("inf")]), "samples_sec"),
        (changed(samples_sec=[float("nan")]), "samples_sec"),
        (changed(outcome="run-error"), "samples_sec"),
        (changed(samples_sec=None), "TypeError"),
        (changed(config="x"), "config"),
        (changed(build_sec="long"), "long"),
        (changed(build_sec=float("nan")), "build_sec must be a finite number"),
        (changed(measured_at=float("inf")), "measured_at must be a finite number"),
        (changed(target=["llvm"]), "target must be text"),
        (changed(device_model=10**400), "device_model must be text"),
        (changed(workload=None), "workload must be text"),
        (changed(measured_at=10**400), "OverflowError"),
        (RECORD.to_json()[:-9], "no JSON "),
    ],
)
def test_what_is_no_record_is_refused_with_a_reason(line: str, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        TuningRecord.from_json(line)


@given(st.text())
def test_any_text_is_a_record_or_an_invalid_record(text: str) -> None:
    with pytest.raises(InvalidRecordError):
        TuningRecord.from_json(text)


def test_load_skips_blank_lines_and_says_which_line_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{RECORD.to_json()}\n\n{RECORD.to_json()}\n")
    assert list(load_records(path)) == [RECORD, RECORD]
    path.write_text(f"{RECORD.to_json()}\nnot this\n{RECORD.to_json()}\n")
    with pytest.raises(InvalidRecordError, match="line 2") as caught:
        list(load_records(path))
    assert caught.value.fields["line"] == 2


def test_load_leaves_out_a_last_line_that_a_killed_writer_left(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(RECORD.to_json() + "\n" + RECORD.to_json()[:50])
    assert list(load_records(path)) == [RECORD]
    path.write_text(RECORD.to_json())
    assert list(load_records(path)) == [RECORD]


def test_pick_best_keeps_one_per_workload_target_device_model_and_toolchain() -> None:
    slow = replace(RECORD, samples_sec=(9e-3,))
    bad = replace(RECORD, outcome=Outcome.RUN_ERROR, samples_sec=())
    others = [
        replace(slow, **{field: "another"})
        for field in ("workload_key", "target_key", "device_model", "toolchain")
    ]
    assert pick_best([slow, bad, *others, RECORD, slow]) == [RECORD, *others]
    assert pick_best([bad]) == []


@pytest.mark.parametrize("bad", [b"\xff\xfe\x00", b"[" * 100_000, b'{"message":"\xc3'])
def test_a_line_of_rubbish_is_named_and_a_last_one_is_left_out(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(bad + b"\n")
    with pytest.raises(InvalidRecordError, match="line 1: not "):
        list(load_records(path))
    path.write_bytes(bad)
    assert list(load_records(path)) == []


@given(records())
def test_a_record_is_made_of_its_fields_json_values(record: TuningRecord) -> None:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    values |= {
        "config": record.config.to_json(),
        "outcome": record.outcome.value,
        "samples_sec": list(record.samples_sec),
    }
    assert TuningRecord.from_fields({**values, "id": "of no field"}) == record
    optional = {"tuner", "message", "extra"}
    least = {name: value for name, value in values.items() if name not in optional}
    assert TuningRecord.from_fields(least) == replace(record, tuner="", message="", extra={})
    assert TuningRecord.from_fields({**values, "extra": None}) == replace(record, extra={})
