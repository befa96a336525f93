"""A graph pass that fails is named in the log and in the report, and fails tests, even if another layout works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx_models
import pytest
import tvm

from tunefarm_tuning.core.errors import InvalidModelError, InvariantError
from tunefarm_tuning.process.running import STRICT_PASSES, child_environment
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.transform import passes
from tunefarm_tuning.tvm.transform.passes import Layout, PassContext
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding

Failing = Callable[[str, tuple[Layout, ...]], None]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """A function after which a pass fails in some layouts, as a bug of ours would."""

    def fail(name: str, layouts: tuple[Layout, ...]) -> None:
        def step(mod: tvm.IRModule, context: PassContext) -> tvm.IRModule:
            if context.layout in layouts:
                raise ValueError("no such axis")
            return mod

        monkeypatch.setattr(
            passes,
            "PASSES",
            tuple(
                replace(graph_pass, step=step) if graph_pass.name == name else graph_pass
                for graph_pass in passes.PASSES
            ),
        )

    return fail


def load(folder: Path) -> RelaxNetwork:
    path = folder / "model"
    path.write_bytes(onnx_models.ORDINARY["mobile_block"]().SerializeToString())
    return load_relax(path, Binding(), parse_target("llvm -mcpu=skylake -num-cores=2"))


def test_tests_fail_on_it(failing: Failing, tmp_path: Path) -> None:
    failing("WidenNarrowConvolutions", (Layout.BY_OPERATOR,))
    with pytest.raises(InvariantError, match=r"WidenNarrowConvolutions failed with ValueError: no such axis"):
        load(tmp_path)


def test_children_of_tests_fail_on_it() -> None:
    assert child_environment({})[STRICT_PASSES] == "1"


def test_users_get_the_other_layout_and_the_reason(
    failing: Failing,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv(STRICT_PASSES)
    failing("WidenNarrowConvolutions", (Layout.BY_OPERATOR,))
    (warning,) = load(tmp_path).warnings
    assert "WidenNarrowConvolutions failed with ValueError: no such axis" in warning
    (record,) = caplog.records
    assert "by-operator: WidenNarrowConvolutions failed with ValueError" in record.getMessage()
    assert record.exc_info is not None


def test_both_reasons_are_told_of_a_network_that_keeps_its_layout(
    failing: Failing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STRICT_PASSES)
    failing("PropagateTransposesUp", (Layout.BY_OPERATOR, Layout.AROUND_CONVOLUTIONS))
    (warning,) = load(tmp_path).warnings
    assert warning.startswith("tensors keep the order of dimensions that the file gives them")
    assert warning.count("PropagateTransposesUp failed with ValueError") == 1


def test_a_layout_rule_of_tvm_that_fails_is_no_news(failing: Failing, tmp_path: Path) -> None:
    failing("ConvertLayout", (Layout.BY_OPERATOR,))
    assert load(tmp_path).warnings == ()


def test_a_network_that_fails_in_every_layout_is_refused(failing: Failing, tmp_path: Path) -> None:
    failing("SimplifyTakes", tuple(Layout))
    with pytest.raises(InvalidModelError, match="cannot make kernels of it: no such axis") as refused:
        load(tmp_path)
    assert refused.value.code == "unsupported-operator"
