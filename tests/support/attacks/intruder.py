"""A farm's secrets, and a stranger who has taken over its children (`hijacked`)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tunefarm_tuning
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.process import child as child_module
from tunefarm_tuning.process.running import RunningChild


@dataclass
class Intruder:
    """What a stranger in a child is after, and what it reports.

    Attributes:
        blob: The stranger's own model, which its child may read.
        environment: What its children get besides.
        after: It takes over the children of modules in whose name this stands, by default all.
        reports: The ``done`` and ``refused`` attacks of each child.
    """

    blob: Path
    environment: dict[str, str]
    after: str = ""
    reports: list[dict[str, Any]] = field(default_factory=list)

    def aim(self, **aims: Any) -> None:
        """Add to what the attacks are told."""
        self.environment["ATTACK"] = json.dumps({**json.loads(self.environment["ATTACK"]), **aims})

    def run(self, call: Callable[[], object]) -> dict[str, str]:
        """Make a call whose children are all taken over; return what each attack achieved that succeeded in any of them."""
        with suppress(TunefarmError):
            call()
        assert self.reports, "no child was attacked from"
        return {name: text for report in self.reports for name, text in report["done"].items()}


def intruder_at(folder: Path, port: int) -> Intruder:
    """Lay out a key, a store with somebody else's file beside the intruder's, and a service of this machine."""
    store = folder / "store"
    store.mkdir()
    blob, beside, key = store / "aa", store / "bb", folder / "admin-key"
    blob.write_bytes(b"the stranger's own")
    beside.write_bytes(b"somebody else's")
    key.write_text("tfk_admin")
    key.chmod(0o600)
    program = str(tunefarm_tuning.__file__)
    aims = {"key": str(key), "beside": str(beside), "outside": str(folder), "program": program, "port": port}
    modules = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return Intruder(blob, {"ATTACK": json.dumps(aims), "PYTHONPATH": os.pathsep.join(modules)})


@contextmanager
def taken_over(intruder: Intruder) -> Iterator[None]:
    """Let the intruder's code run in every child of the block, with the access and the sandbox of the real one."""

    class Hijacked(RunningChild):
        def __init__(self, *, env: dict[str, str]) -> None:
            super().__init__(env={**env, **intruder.environment})

        def give_order(self, module: str, **rest: Any) -> None:
            super().give_order("hijacked" if intruder.after in module else module, **rest)

        def read_line(self, *, deadline: float, max_bytes: int) -> bytes | None:
            line = super().read_line(deadline=deadline, max_bytes=max_bytes)
            error = json.loads(line or b"{}").get("error")
            if error is not None and "done" in error["fields"]:
                intruder.reports.append(error["fields"])
            return line

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child_module, "RunningChild", Hijacked)
        yield
