"""What excuses a network that is wrong on some inputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tunefarm_tuning.compiler.model_comparison import ModelComparison
from tunefarm_tuning.compiler.phases import check_model
from tunefarm_tuning.compiler.phases.check_model import CheckedModel, excused_by_segments
from tunefarm_tuning.compiler.phases.load import LoadedModel
from tunefarm_tuning.compiler.phases.untuned import UntunedModel
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.reference.comparison import STEPS, compare_arrays
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.reference.random_inputs import InputKind


def compared(rounding: str, *wrong: bool) -> ModelComparison:
    """Return the comparison of a network on sets of inputs, on some of which it counts one duration too many."""
    durations = np.arange(128)
    return ModelComparison(
        sets=tuple(
            (
                InputSet(seed=number, rounding=rounding, inputs=Path("inputs"), expected=Path("outputs")),
                (compare_arrays("ends", durations + is_wrong, durations, rounding=rounding),),
            )
            for number, is_wrong in enumerate(wrong)
        )
    )


@pytest.mark.parametrize(
    ("parts", "rounding", "wrong", "is_excused"),
    [
        (("part",), STEPS, (True, False), True),
        (("part",), STEPS, (True, True), False),  # a fault is there on all inputs
        (("part",), "float32", (True, False), False),
        ((), STEPS, (True, False), False),  # it can be compared segment by segment
    ],
)
def test_a_network_with_parts_of_onnx_runtime_is_excused_if_it_is_right_on_other_inputs(
    parts: tuple[str, ...], rounding: str, wrong: tuple[bool, bool], is_excused: bool, monkeypatch: Any
) -> None:
    none = SimpleNamespace(wrong=None, not_checked="it cannot be cut", count=0)
    monkeypatch.setattr(check_model, "check_segments", lambda *_args, **_named: none)
    loaded = cast("Any", SimpleNamespace(sets=[None]))
    request = cast("Any", SimpleNamespace(model=SimpleNamespace(parts=parts)))
    untuned = UntunedModel(library=Path("a.so"), unscheduled=False)
    checked = CheckedModel(library=untuned.library, comparison=compared(rounding, *wrong), untuned=untuned)
    excused = excused_by_segments(request, loaded, checked, cast("Any", None))
    assert (excused is not None) == is_excused
    if excused is not None:
        assert excused.comparison.ok
        assert (
            "on other inputs they are correct. The network was not compared segment by segment: it cannot be cut"
            in excused.warnings[0]
        )


@pytest.mark.parametrize("is_close", [True, False])
def test_a_sensitive_network_with_parts_is_compared_by_fixed_shares(
    is_close: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segments are not compared, so that there is nothing else to go by."""
    by_shares = SimpleNamespace(ok=is_close, moved=0.9)
    given = InputSet(kind=InputKind.NORMAL, inputs=Path("in"), expected=Path("out"), widths=Path("widths"))
    loaded = LoadedModel(
        **dict.fromkeys(("compiler", "runner", "references", "info", "untuned"), cast("Any", None)),
        runs={"noticed": 1, "probes": 1}, sets=(given,), threads=1, warnings=(),
    )  # fmt: skip

    def compare(_request: Any, fixed: LoadedModel, library: Path) -> Any:
        assert [each.widths for each in fixed.sets] == [None]
        assert library == Path("a.so")
        return by_shares

    monkeypatch.setattr(check_model, "_run_untuned", compare)
    none = SimpleNamespace(wrong=None, not_checked="it has parts", count=0, to_json=dict)
    monkeypatch.setattr(check_model, "check_segments", lambda *_args, **_named: none)
    loose = cast("Any", SimpleNamespace(says_nothing=True, moved=0.9, to_json=dict))
    untuned = UntunedModel(library=Path("a.so"))
    checked = CheckedModel(library=untuned.library, comparison=loose, untuned=untuned)
    request = cast("Any", SimpleNamespace(model=SimpleNamespace(parts=("part",))))
    if is_close:
        assert check_model.confirmed(request, loaded, checked, cast("Any", None)).comparison is by_shares
    else:
        with pytest.raises(InvalidModelError, match="too sensitive to rounding"):
            check_model.confirmed(request, loaded, checked, cast("Any", None))
