"""Variables and parameters are called after what they hold, in Python, in the pages' scripts and in templates."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest
from jinja2 import Environment, nodes
from repository import ROOT, repository_files

EMPTY_NAMES = frozenset({"one", "found", "made", "place", "thing"})
"""They say nothing of what a variable holds."""

_EMPTY_WORDS = re.compile(rf"\b({'|'.join(sorted(EMPTY_NAMES))})\b")

RELEASED = {"tuning/tunefarm_tuning/space/config_space.py": ["one"]}
"""The parameter of the deprecated `ConfigSpace.crossover` may be given by name."""

_JS_DECLARATIONS = (
    r"\b(?:const|let|var)\s+(\w+|[\[{][^=]*?[\]}])\s*(?:=|;|,|\bof\b|\bin\b)",
    r"[,(]\s*(\w+)\s*=(?![=>])",  # further variables of a statement, parameters with defaults
    r"\b(?:async\s+)?(\w+)\s*=>",
    r"\(([^()]*)\)\s*=>",
    r"\bfunction\b\s*(\w*\s*\([^)]*\))",
    r"^\s*(?:async\s+)?\w+(\([^()]*\))\s*\{",  # methods
    r"\bcatch\s*\((\w+)\)",
)


def python_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def fields_of_classes(tree: ast.AST) -> Iterator[str]:
    """Return the fields of classes: some are keys of stored JSON."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.target.id


def python_variables(text: str) -> list[str]:
    tree = ast.parse(text)
    names = list(python_names(tree))
    for field in fields_of_classes(tree):
        names.remove(field)
    return names


def script_variables(text: str) -> list[str]:
    code = re.sub(r"^\s*//.*$|\s//\s.*$|/\*.*?\*/", "", text, flags=re.MULTILINE)
    return [
        name
        for pattern in _JS_DECLARATIONS
        for declared in re.findall(pattern, code, flags=re.MULTILINE)
        for name in re.findall(r"\w+", declared)
    ]


def template_variables(text: str) -> list[str]:
    tree = Environment().parse(text)
    stored = [name.name for name in tree.find_all(nodes.Name) if name.ctx in ("store", "param")]
    return [*stored, *(macro.name for macro in tree.find_all(nodes.Macro))]


def own_files(*patterns: str) -> list[str]:
    return [str(path) for path in repository_files(*patterns) if "vendor" not in path.parts]


def empty_names(variables: list[str]) -> list[str]:
    return [name for name in variables if name in EMPTY_NAMES]


@pytest.mark.parametrize(
    ("patterns", "variables", "least"),
    [
        (["*.py"], python_variables, 500),
        (["services/*.js"], script_variables, 10),
        (["services/*.html"], template_variables, 30),
    ],
    ids=["python", "scripts", "templates"],
)
def test_variables_say_what_they_hold(
    patterns: list[str], variables: Callable[[str], list[str]], least: int
) -> None:
    files = own_files(*patterns)
    assert len(files) >= least
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in files}
    empty = {
        name: names
        for name, text in texts.items()
        if _EMPTY_WORDS.search(text)  # a tree takes longer than a search
        and (names := empty_names(variables(text)))
        and names != RELEASED.get(name)
    }
    assert not empty


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (python_variables, "one = 1"),
        (python_variables, "[f(one) for one in many]"),
        (python_variables, "def f(*, one): ..."),
        (python_variables, "lambda one: 1"),
        (python_variables, "class A:\n    one: int\ndef f():\n    if (one := 1): ..."),
        (script_variables, "const one = 1;"),
        (script_variables, "let a = 1, one = 2;"),
        (script_variables, "const { a, one } = f();"),
        (script_variables, "for (const [a, one] of many) f();"),
        (script_variables, "many.map((one) => 1)"),
        (script_variables, "many.map(one => 1)"),
        (script_variables, "many.map(([one, a]) => 1)"),
        (script_variables, "function f(a, one) {}"),
        (script_variables, "class A {\n  async f(a, one) {\n"),
        (script_variables, "function one() {}"),
        (template_variables, "{% for one in many %}{% endfor %}"),
        (template_variables, "{% for a, one in many %}{% endfor %}"),
        (template_variables, "{% set one = 1 %}"),
        (template_variables, "{% macro f(a, one) %}{% endmacro %}"),
        (template_variables, "{% with one = 1 %}{% endwith %}"),
    ],
)
def test_every_kind_of_variable_is_read(variables: Callable[[str], list[str]], text: str) -> None:
    assert "one" in variables(text)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (python_variables, "class A:\n    one: int\nA().one(one=1)"),
        (script_variables, '// one\nconst a = { one: b.one() }; f("one", `one ${a}`);'),
        (template_variables, "one {# one #}{{ a.one }}{{ f('one') }}"),
    ],
)
def test_other_words_are_not_variables(variables: Callable[[str], list[str]], text: str) -> None:
    assert "one" not in variables(text)
