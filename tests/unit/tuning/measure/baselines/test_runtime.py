"""Which value each input of a runtime's file gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.baselines.runtime import NetworkFile, in_files_order

X, Y = np.zeros(1, np.float32), np.ones(2, np.float32)


def network(**constants: Any) -> NetworkFile:
    return NetworkFile(path=Path("net"), inputs={"x": X, "y": Y}, constants=constants, threads=1)


def test_names_decide_and_else_the_order() -> None:
    assert [value is Y for value in in_files_order(["y", "x"], network())] == [True, False]
    assert [value is Y for value in in_files_order(["serving:0", "serving:1"], network())] == [False, True]
    assert in_files_order(["size", "y", "x"], network(size=[3]))[0] == [3]


@pytest.mark.parametrize(
    ("names", "given"),
    [(["x"], network()), (["a", "b", "c"], network(size=3)), (["x", "y"], network(size=3))],
)
def test_other_inputs_are_refused(names: list[str], given: NetworkFile) -> None:
    with pytest.raises(InvalidInputError, match="inputs in the file"):
        in_files_order(names, given)
