"""Parts of joined tensors are taken from what was joined."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tunefarm_convert.onnx_writer import OnnxWriter

WHOLE = np.arange(18, dtype=np.float32).reshape(9, 2)


def table() -> tuple[OnnxWriter, str]:
    """Join rows 0 to 2 and 3 to 4, and the result with rows 5 to 8."""
    writer = OnnxWriter("net")
    first, second, third = (writer.weight(part) for part in np.split(WHOLE, [3, 5]))
    return writer, writer.concat([(writer.concat([(first, 3), (second, 2)], 0), 5), (third, 4)], 0)


@pytest.mark.parametrize("start", range(9))
def test_every_part_is_that_of_the_whole(start: int) -> None:
    writer, whole = table()
    for count in range(1, 10 - start):
        part = writer.cut(whole, 0, start, count)
        assert part is not None
        (value,) = writer.evaluate([part], 0)
        assert np.array_equal(value, WHOLE[start : start + count])


def test_what_was_joined_is_taken_as_it_is() -> None:
    writer, whole = table()
    before = writer.num_nodes
    first = writer.cut(whole, 0, 0, 3)
    assert first is not None
    assert writer.num_nodes == before, "it is the first tensor itself"
    assert writer.cut(first, 0, 0, 2) is None, "nobody joined that"


def test_a_part_along_another_dimension_is_none() -> None:
    writer, whole = table()
    assert writer.cut(whole, 1, 0, 1) is None


def test_a_list_that_a_loop_fills_is_joined_once() -> None:
    writer = OnnxWriter("net")
    rows = [writer.node("Identity", [f"x{number}"]) for number in range(8)]
    filled = writer.weight(np.zeros((8, 2), np.float32))
    for number, row in enumerate(rows):
        parts = []
        for start, count in ((0, number), (number + 1, 7 - number)):
            if count:
                cut = writer.cut(filled, 0, start, count)
                bounds = [writer.ints([value]) for value in (start, start + count, 0, 1)]
                parts.append((cut or writer.node("Slice", [filled, *bounds]), count))
        parts.insert(1 if number else 0, (row, 1))
        filled = writer.concat(parts, 0)
    inputs = [helper.make_tensor_value_info(f"x{number}", 1, [1, 2]) for number in range(8)]
    model = writer.model(inputs, [(filled, helper.make_tensor_value_info("y", 1, [8, 2]))])
    kinds = [node.op_type for node in model.graph.node]
    assert (kinds.count("Concat"), kinds.count("Slice")) == (1, 0)
