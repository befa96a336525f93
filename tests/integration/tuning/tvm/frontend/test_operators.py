"""The shipped list of supported operators equals that of the importer."""

from __future__ import annotations

import onnx

from tunefarm_tuning.frontend.onnx import operators
from tunefarm_tuning.tvm.frontend.converters.table import CONVERTERS
from tunefarm_tuning.tvm.frontend.importer import (
    contributed_operators,
    machine_learning_operators,
    supported_operators,
)


def test_the_list_is_what_the_importer_supports() -> None:
    standard = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain}
    assert supported_operators() & (standard | operators.STANDARD) == operators.STANDARD
    # ONNX Runtime's own: one by a name that TVM knows without its domain, one that it has put into ONNX's.
    assert supported_operators() - standard == {"AllClassNMS", "SimplifiedLayerNormalization"}
    assert contributed_operators() == operators.CONTRIBUTED
    assert machine_learning_operators() == operators.MACHINE_LEARNING


def test_converters_are_listed_by_name() -> None:
    assert list(CONVERTERS) == sorted(CONVERTERS)
