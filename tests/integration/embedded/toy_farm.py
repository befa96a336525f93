"""A supervisor of toy parts: ``toy_farm.py HOME PARTS``; the parts are Python programs, as JSON. Ends with its standard input."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tunefarm.embedded import supervisor
from tunefarm.embedded.__main__ import _events, _fail, _wait_for_end
from tunefarm.embedded.home import FarmHome
from tunefarm.embedded.options import FarmOptions
from tunefarm.embedded.processes import Facts
from tunefarm_tuning.core.errors import TunefarmError


@dataclass(frozen=True)
class ToyPart:
    name: str
    code: str
    needs: tuple[str, ...] = ()
    starts_after: tuple[str, ...] | None = None
    grace_sec: float = 5.0

    def command(self, facts: Facts) -> list[str]:
        return [sys.executable, "-u", "-c", self.code]

    def environment(self, facts: Facts, base: Mapping[str, str]) -> dict[str, str]:
        return dict(base)

    def is_up(self, facts: Facts, output: str) -> bool:
        return "up\n" in output


def main() -> int:
    home = FarmHome(Path(sys.argv[1]))
    home.prepare()
    parts = [
        ToyPart(**{**fields, "needs": tuple(fields.get("needs", ()))}) for fields in json.loads(sys.argv[2])
    ]
    supervisor.ORPHAN_GRACE_SEC = 1.0
    emit = _events()
    facts = Facts(home=home, options=FarmOptions(), valkey_server="none")
    try:
        supervisor.Supervisor(
            parts, facts, environment=os.environ, emit=emit, wait=_wait_for_end(with_stdin=True)
        ).run()
    except TunefarmError as error:
        _fail(emit, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
