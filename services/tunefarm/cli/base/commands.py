"""Register commands: add the shared options, handle errors, report wrong usage."""

from __future__ import annotations

import inspect
import json as json_format
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

from tunefarm.cli.base import edge
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.exit_codes import EPILOG
from tunefarm.cli.base.option_group import OptionGroup
from tunefarm.cli.base.output import Output

F = TypeVar("F", bound=Callable[..., None])

_Json = Annotated[
    bool,
    typer.Option("--json", help="Print only JSON on standard output.", rich_help_panel="Output"),
]
_Debug = Annotated[
    bool,
    typer.Option(
        "--debug", envvar="TUNEFARM_DEBUG", help="Show the traceback of an error.", rich_help_panel="Output"
    ),
]


def group(name: str, help: str, *, completion: bool = False) -> typer.Typer:  # noqa: A002
    """Return an empty group of commands."""
    return typer.Typer(
        cls=Group,
        name=name,
        help=help,
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        add_completion=completion,
        rich_markup_mode="rich",
    )


def command(app: typer.Typer, name: str, *, json: bool = True) -> Callable[[F], F]:
    """Register a function as a command of `app`. Its docstring is the help.

    Its first parameter is the `Output`. A parameter whose type is an `OptionGroup` gets that group, made of the group's
    options. The others are typer's.
    """

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        groups: dict[str, type[OptionGroup]] = {}
        own: list[str] = []
        parameters: list[inspect.Parameter] = []
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            hint = hints[parameter.name]
            if inspect.isclass(hint) and issubclass(hint, OptionGroup):
                groups[parameter.name] = hint
                parameters += hint.parameters() if hint is not Server else []
            else:
                own.append(parameter.name)
                parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))
        if Server in groups.values():  # the group's options come last
            parameters += Server.parameters()
        parameters += [_shared("json_", _Json)] if json else []
        parameters.append(_shared("debug_", _Debug))

        def run(**arguments: Any) -> None:
            output = Output(json=arguments.pop("json_", False), debug=arguments.pop("debug_"))
            values = {name: arguments[name] for name in own}
            values |= {group: kind.of(arguments) for group, kind in groups.items()}
            raise typer.Exit(edge.run(output, lambda: function(output, **values)))

        run.__name__, run.__doc__ = function.__name__, _paragraphs(function)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name, epilog=EPILOG)(run)
        return function

    return register


def _shared(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)


def _paragraphs(function: Callable[..., None]) -> str:
    """Return the docstring with one line per paragraph, because typer would keep our line ends."""
    text = inspect.getdoc(function) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


_PYDANTIC_WORDS = (
    (re.compile("^Value error, "), ""),
    (re.compile("^Input should be a valid integer.*$", re.DOTALL), "it must be a whole number"),
    (re.compile("^Input should be a valid number.*$", re.DOTALL), "it must be a number"),
    (re.compile("^Input should be "), "it must be "),
)
"""How pydantic's messages begin, which typer shows, and how ours do."""


class Group(TyperGroup):
    """A group of commands. It reports wrong usage as typer does, or as JSON if ``--json`` is among the arguments."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the group; wrong usage under ``--json`` is reported as an object."""
        args = sys.argv[1:] if args is None else list(args)
        as_json = standalone_mode and wants_json(args)
        try:
            code = super().main(
                args, prog_name, complete_var, standalone_mode and not as_json, windows_expand_args, **extra
            )
        except Exception as error:
            # Recognised by its attributes: the class is typer's own copy of click's.
            if not as_json or not hasattr(error, "format_message"):
                raise
            _tell(error)
            sys.exit(error.exit_code)  # type: ignore[attr-defined]
        if as_json:
            sys.exit(code)
        return code

    def invoke(self, ctx: Any) -> Any:
        """Invoke a command; wrong usage is told in our words instead of pydantic's, which typer shows."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if hasattr(error, "format_message"):
                told: Any = error
                message = str(told.message)
                for pattern, words in _PYDANTIC_WORDS:
                    message = pattern.sub(words, message)
                told.message = message
            raise


def wants_json(args: Sequence[str]) -> bool:
    """Return whether ``--json`` is among the arguments. They are only searched, because they cannot be parsed."""
    options = args[: args.index("--")] if "--" in args else args
    return "--json" in options


def _tell(error: Any) -> None:
    report = {"error": {"code": "wrong-usage", "message": error.format_message()}}
    if error.ctx is not None:
        report["error"]["usage"] = error.ctx.get_usage()
    with suppress(BrokenPipeError):
        Output(json=True).data(report)
    sys.stderr.write(json_format.dumps(report, separators=(",", ":")) + "\n")
