"""Wrong usage under ``--json``: an object, as every other error, in place of typer's box."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from typer.core import TyperGroup

from tunefarm.cli.base.output import Output


class Group(TyperGroup):
    """A group of commands. It tells of wrong usage as typer does, or as JSON where ``--json`` is among the arguments."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        args = sys.argv[1:] if args is None else list(args)
        as_json = standalone_mode and wants_json(args)
        try:
            code = super().main(
                args, prog_name, complete_var, standalone_mode and not as_json, windows_expand_args, **extra
            )
        except Exception as error:
            # Told by what it has: the class is typer's own copy of click's.
            if not as_json or not hasattr(error, "format_message"):
                raise
            _tell(error)
            sys.exit(error.exit_code)  # type: ignore[attr-defined]
        if as_json:
            sys.exit(code)
        return code


def wants_json(args: Sequence[str]) -> bool:
    """Return whether ``--json`` is among the options; where nothing can be parsed, nothing else can be known."""
    options = args[: args.index("--")] if "--" in args else args
    return "--json" in options


def _tell(error: Any) -> None:
    told = {"error": {"code": "wrong-usage", "message": error.format_message()}}
    if error.ctx is not None:
        told["error"]["usage"] = error.ctx.get_usage()
    with suppress(BrokenPipeError):
        Output(json=True).data(told)
    sys.stderr.write(json.dumps(told, separators=(",", ":")) + "\n")
