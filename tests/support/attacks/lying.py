"""Children that a stranger's bytes have taken over, and that answer as the stranger likes (`liar`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from tunefarm_tuning.process import child as child_module
from tunefarm_tuning.process.running import RunningChild


@contextmanager
def lying(lies: Mapping[str, Mapping[str, Any]], *, modules: str = "") -> Iterator[list[dict[str, Any]]]:
    """Let children answer with lies by their methods' names, under the access and the sandbox of the real ones.

    Args:
        lies: As `liar` reads them.
        modules: Only the children whose module's name ends so; all by default.

    Yields:
        What each child that was started in the block may touch (`Access.to_json`), in order.
    """
    granted: list[dict[str, Any]] = []
    variables = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }

    class Liar(RunningChild):
        def __init__(self, *, env: Mapping[str, str]) -> None:
            super().__init__(env={**env, **variables})

        def give_order(self, module: str, **rest: Any) -> None:
            access = rest["access"]
            granted.append({} if access is None else {"module": module, **access.to_json()})
            super().give_order("liar" if module.endswith(modules) else module, **rest)

    with pytest.MonkeyPatch.context() as patch, NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(lies, file)
        file.flush()
        variables["LIES"] = file.name
        patch.setattr(child_module, "RunningChild", Liar)
        yield granted
