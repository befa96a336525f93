"""ONNX's own test cases have the outcomes that the committed table says, or better ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.conformance.cases import all_cases
from benchmarks.conformance.run import OURS, Runner
from benchmarks.conformance.table import OUTCOMES as KEPT
from benchmarks.conformance.table import is_pass, load_outcomes, main, make_table

OUTCOMES = load_outcomes()


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with Runner(OURS, tmp_path_factory.mktemp("conformance")) as runner:
        yield runner


@pytest.mark.matrix(every=80, each_value=False)
@pytest.mark.parametrize("name", sorted(OUTCOMES))
def test_a_case(name: str, runner: Runner) -> None:
    expected, outcome = OUTCOMES[name], runner.outcome(all_cases()[name])
    assert outcome.passes or (not is_pass(expected) and outcome.word == expected["word"]), outcome


def test_every_case_has_an_outcome() -> None:
    assert set(OUTCOMES) == set(all_cases())


def test_no_outcomes_leave_the_kept_ones_alone(tmp_path: Path) -> None:
    kept = KEPT.read_bytes()
    with pytest.raises(SystemExit, match="no outcomes are there"):
        main([str(tmp_path / "missing.jsonl")])
    assert KEPT.read_bytes() == kept


def test_no_result_is_wrong_where_onnx_runtime_is_right() -> None:
    right = [line for line in OUTCOMES.values() if line["of_tensors"] and line["reference"] == "passes"]
    assert [line["name"] for line in right if line["word"] in ("wrong", "fails")] == []
    assert sum(map(is_pass, right)) >= 0.95 * len(right)


def test_a_wrong_result_is_seen(runner: Runner) -> None:
    case = all_cases()["test_relu"]
    (expected,) = case.expected
    other = type(case)(
        case.name, case.operator, case.model, case.feeds, [expected * 1.01], case.rtol, case.atol
    )
    outcome = runner.outcome(other)
    assert outcome.word == "wrong"
    assert "Mismatched" in outcome.reason


def test_the_table_says_what_is_refused_and_why() -> None:
    line = {"of_tensors": True, "reference": "passes", "code": "", "reason": ""}
    lines = [
        {**line, "name": "test_a", "operator": "Relu", "word": "passes"},
        {**line, "name": "test_b", "operator": "TopK", "word": "passes-with-values"},
        {
            **line,
            "name": "test_c",
            "operator": "TopK",
            "word": "refused",
            "reason": "TVM cannot import node number 0 (TopK, opset 11): k | unknown",
        },
        {**line, "name": "test_d", "operator": "DFT", "word": "wrong", "reference": "wrong", "reason": "off"},
    ]
    page = make_table(lines)
    assert "| TopK | 2 | 0 | 1 | 1 | 0 | 0 |" in page
    assert "Every case passes: `Relu` 1." in page
    assert "| TopK | 1 | k \\| unknown | `test_c` |" in page
    assert "passes **2 (66.7%)**" in page
    assert "| `test_d` | wrong | wrong: off |" in page
