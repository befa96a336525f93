"""Recorded outputs of LiteRT, TFLite's interpreter, for the files in `tflite_zoo`: it is no dependency.

After a change of the zoo, in an environment that has ai-edge-litert: ``python tests/support/networks/litert_outputs.py``.
"""

from __future__ import annotations

import base64
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tflite_zoo import ZOO, Case

PATH = Path(__file__).with_suffix(".json")


def recorded() -> dict[str, list[NDArray[Any]]]:
    """Return outputs by the name of the file."""
    cases = json.loads(PATH.read_text(encoding="utf-8"))["outputs"]
    return {name: [_decoded(output) for output in outputs] for name, outputs in cases.items()}


def _decoded(output: dict[str, Any]) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(output["data"]), output["dtype"]).reshape(output["shape"])


def _encoded(array: NDArray[Any]) -> dict[str, Any]:
    data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data}


def _outputs(case: Case) -> list[NDArray[Any]]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=case.data, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for input_details, array in zip(interpreter.get_input_details(), case.feeds(), strict=True):
        interpreter.set_tensor(input_details["index"], array)
    interpreter.invoke()
    return [
        np.asarray(interpreter.get_tensor(details["index"])) for details in interpreter.get_output_details()
    ]


def main() -> None:
    lines = [
        f"{json.dumps(name)}: {json.dumps([_encoded(output) for output in _outputs(make())])}"
        for name, make in ZOO.items()
    ]
    made_by = json.dumps(f"ai-edge-litert {version('ai-edge-litert')}")
    text = f'{{"made_by": {made_by}, "outputs": {{\n' + ",\n".join(lines) + "\n}}\n"
    PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
