"""Write docs/reference/ from the code: the command, the API, the client, the engine, the settings.

    python docs/generate.py           # write the pages
    python docs/generate.py --check   # exit 1 if a page is not what would be written

No documentation tool is used: the sources are four different things (typer, OpenAPI, docstrings, pydantic), and each page is a loop over one of them.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
PACKAGES = tuple(
    ROOT / folder
    for folder in (
        "tuning/tunefarm_tuning",
        "tuning/tunefarm_convert",
        "db/tunefarm_db",
        "services/tunefarm_app",
        "services/tunefarm_api",
        "workers/tunefarm_workers",
        "services/tunefarm",
        "services/tunefarm_text",
    )
)


def main() -> int:
    """Write or check all pages; returns the exit code."""
    pages = {
        "README.md": _index(),
        "command.md": _command(),
        "client.md": _client(),
        "engine.md": _engine(),
        "settings.md": _settings(),
        "api.md": _api(),
        "problems.md": _problems(),
        "modules.md": _modules(),
        "openapi.json": json.dumps(_openapi(), indent=1, sort_keys=True) + "\n",
    }
    stale = [
        name
        for name, text in pages.items()
        if not (REFERENCE / name).is_file() or (REFERENCE / name).read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/reference/{name} is not up to date: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for name in stale:
        (REFERENCE / name).write_text(pages[name], encoding="utf-8")
    print(f"wrote {len(stale)} of {len(pages)} pages")
    return 0


def _index() -> str:
    return """# Reference

Generated from the code by `make docs`; a test keeps it up to date.

- [The command](command.md)
- [The API](api.md), and its [OpenAPI document](openapi.json)
- [Problems](problems.md): what the API answers where something is wrong
- [The Python client](client.md)
- [The engine](engine.md)
- [Settings](settings.md)
- [Modules](modules.md): every module of the product, by folder, in a sentence
"""


def _modules() -> str:
    lines = [
        "# Modules",
        "",
        (
            "Every module of the product with the first sentence of its docstring. "
            "[Extending](../extending.md) says where each kind of change belongs, "
            "[the architecture](../architecture.md) how the modules work together."
        ),
        "",
    ]
    for package in PACKAGES:
        lines += [
            f"## `{package.name}`",
            "",
            f"In `{package.relative_to(ROOT)}/`. {_first_sentence(package / '__init__.py')}",
            "",
        ]
        for folder in sorted({path.parent for path in package.rglob("*.py")}):
            modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
            if folder != package:
                room = folder.relative_to(package)
                lines += [f"### `{room}/`", ""]
                if (folder / "__init__.py").exists():
                    lines += [_first_sentence(folder / "__init__.py"), ""]
            if modules:
                lines += [f"- `{path.stem}`: {_first_sentence(path)}" for path in modules] + [""]
    return "\n".join(lines)


def _first_sentence(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def _command() -> str:
    from tunefarm.cli.main import make_app

    root = typer.main.get_command(make_app())
    return "# The command\n\n" + "\n".join(_command_page(root, "tunefarm"))


def _command_page(command: Any, path: str) -> Iterator[str]:
    # Duck-typed: typer ships its own copies of click's classes.
    children: dict[str, Any] = getattr(command, "commands", {})
    yield f"## `{path}`\n"
    yield f"{inspect.cleandoc(command.help or '').replace(chr(8), '')}\n"
    rows = []
    for parameter in (each for each in command.params if not getattr(each, "hidden", False)):
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        if parameter.param_type_name == "argument":
            names = f"`{parameter.metavar or parameter.name.upper()}`"
        text = " ".join((getattr(parameter, "help", None) or "").split())
        variable = f" Environment: `{parameter.envvar}`." if parameter.envvar else ""
        rows.append(f"| {names} | {text}{variable} |")
    if rows:
        yield "| Option | |\n|---|---|"
        yield "\n".join(row.replace("\n", " ") for row in rows) + "\n"
    if epilog := getattr(command, "epilog", None):
        yield f"{epilog}\n" if path == "tunefarm" else ""
    for name, child in children.items():
        if not child.hidden:
            yield from _command_page(child, f"{path} {name}")


def _client() -> str:
    from tunefarm import client, embedded
    from tunefarm.client.devices import Devices
    from tunefarm.client.jobs import Jobs
    from tunefarm.client.keys import Keys
    from tunefarm.client.models import Models
    from tunefarm.client.records import Records
    from tunefarm.client.sweeps import Sweeps
    from tunefarm.client.webhooks import Webhooks

    parts = [
        "# The Python client\n",
        "`tunefarm.Client` blocks. `tunefarm.AsyncClient` has the same methods, to be awaited; its iterators are asynchronous.\n",
    ]
    for kind in (
        client.Client,
        client.AsyncClient,
        client.JobHandle,
        Models,
        Jobs,
        Devices,
        Records,
        Keys,
        Sweeps,
        Webhooks,
    ):
        parts.append(f"## `{kind.__name__}`\n")
        parts.append(_text(inspect.getdoc(kind)))
        if kind is client.Client:
            constructor = kind.__init__
            parts.append(f"### `Client{_signature(constructor)}`\n\n{_text(inspect.getdoc(constructor))}")
        parts += [] if kind is client.AsyncClient else _methods(kind)
    parts.append("## A farm in a program or a notebook: `tunefarm.embedded`\n")
    for kind in (embedded.EmbeddedFarm, embedded.FarmOptions):
        parts.append(f"### `{kind.__name__}`\n")
        parts.append(_text(inspect.getdoc(kind)))
        parts += _methods(kind) if kind is embedded.EmbeddedFarm else []
    parts.append("## Retries\n")
    parts.append(_text(inspect.getdoc(client.RetryPolicy)))
    parts.append("## Errors\n")
    parts.append(_text(inspect.getdoc(inspect.getmodule(client.ClientError))))
    return "\n".join(parts)


def _engine() -> str:
    import tunefarm_tuning

    parts = ["# The engine\n", "Public names of `tunefarm_tuning`. Tuning needs no service.\n"]
    for name in sorted(tunefarm_tuning.__all__, key=str.lower):
        value = getattr(tunefarm_tuning, name)
        parts.append(f"## `{name}`\n")
        if inspect.isclass(value):
            parts.append(_text(inspect.getdoc(value)))
            parts += _methods(value)
        elif callable(value) and inspect.isfunction(inspect.unwrap(value)):
            parts.append(f"```python\n{name}{_signature(value)}\n```\n")
            parts.append(_text(inspect.getdoc(value)))
        else:
            parts.append(f"`{value!r}`\n")
    return "\n".join(parts)


def _methods(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not inspect.isfunction(function) or not inspect.getdoc(function):
            continue
        yield f"### `{kind.__name__}.{name}{_signature(function)}`\n"
        yield _text(inspect.getdoc(function))


def _signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("'", "")


def _text(docstring: str | None) -> str:
    """Return a Google-style docstring as a text block: it keeps its sections, and needs no parser."""
    return f"```text\n{docstring}\n```\n" if docstring else ""


def _settings() -> str:
    from tunefarm_app.settings import Settings

    rows = [
        f"| `TUNEFARM_{name.upper()}` | {'required' if field.is_required() else f'`{field.default}`'} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(
        [
            "# Settings\n",
            "Environment variables of the API and of workers, read once at start.\n",
            "| Variable | Default |\n|---|---|",
            *rows,
            "",
            _text(inspect.getdoc(Settings)),
        ]
    )


def _openapi() -> dict[str, Any]:
    from tunefarm_api.app import create_app
    from tunefarm_api.openapi import describe
    from tunefarm_app.settings import load_settings

    # Nothing is connected to before the application starts, and here it never does.
    settings = load_settings(
        database_url="sqlite://", broker_url="redis://localhost", store_dir=Path("store")
    )
    return describe(create_app(settings))


def _api() -> str:
    document = _openapi()
    parts = [
        "# The API\n",
        "Every route but the two of health needs `Authorization: Bearer <API key>`. Errors are [problem documents](problems.md) (RFC 9457).",
        "The whole description, with schemas and examples, is [openapi.json](openapi.json).\n",
        "| Route | |\n|---|---|",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"| `{method.upper()} {path}` | {operation.get('summary', '')} |")
    return "\n".join(parts) + "\n"


def _problems() -> str:
    from tunefarm_api.errors.problem_kinds import PROBLEM_KINDS, URN

    rows = [f"| `{code}` | {kind.status} | {kind.meaning} |" for code, kind in sorted(PROBLEM_KINDS.items())]
    return "\n".join(
        [
            "# Problems\n",
            "Every error of the API is a problem document (RFC 9457), sent as `application/problem+json`.",
            f"Its `type` is `{URN}` and the code, and `code` the code alone: programs go by it.",
            "A code keeps its status and its meaning for good; new ones may come. `title` and `detail` are for people, and may change.\n",
            "| Code | Status | |\n|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
