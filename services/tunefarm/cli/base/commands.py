"""Registers commands: gives each the options that all share, and runs it at the edge."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from tunefarm.cli.base import edge
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.exit_codes import EPILOG
from tunefarm.cli.base.options import ApiKey, ApiKeyFile, Home, Url
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.usage import Group

F = TypeVar("F", bound=Callable[..., None])

_Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print JSON on standard output, and nothing else there.", rich_help_panel="Output"
    ),
]
_Debug = Annotated[
    bool,
    typer.Option(
        "--debug", envvar="TUNEFARM_DEBUG", help="Show where an error came from.", rich_help_panel="Output"
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


_JSON = {"json_": (_Json, False)}
_DEBUG = {"debug_": (_Debug, False)}
_SERVER_OPTIONS = {
    "url_": (Url, None),
    "api_key_": (ApiKey, None),
    "api_key_file_": (ApiKeyFile, None),
    "home_": (Home, None),
}


def command(app: typer.Typer, name: str, *, json: bool = True) -> Callable[[F], F]:
    """Register a function as a command of `app`. Its docstring is the help.

    Its first parameter is the `Output`. A parameter of type `Server` gets what the options about the server say.
    The others are typer's.

    Args:
        app: Where it goes.
        name: What users type.
        json: Whether it has ``--json``.
    """

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        ]
        wants_server = [parameter.name for parameter in own if parameter.annotation is Server]
        shared = {**(_SERVER_OPTIONS if wants_server else {}), **(_JSON if json else {}), **_DEBUG}
        parameters = [
            *(parameter for parameter in own if parameter.annotation is not Server),
            *(
                inspect.Parameter(
                    option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
                )
                for option, (annotation, default) in shared.items()
            ),
        ]

        def run(**arguments: Any) -> None:
            output = Output(json=arguments.pop("json_", False), debug=arguments.pop("debug_"))
            for server in wants_server:
                arguments[server] = Server(
                    **{name.rstrip("_"): arguments.pop(name) for name in _SERVER_OPTIONS}
                )
            raise typer.Exit(edge.run(output, lambda: function(output, **arguments)))

        run.__name__, run.__doc__ = function.__name__, _paragraphs(function)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name, epilog=EPILOG)(run)
        return function

    return register


def _paragraphs(function: Callable[..., None]) -> str:
    """Return the docstring with a line per paragraph: typer would keep our line ends."""
    text = inspect.getdoc(function) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
