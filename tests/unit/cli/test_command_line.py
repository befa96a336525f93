"""The command line as a whole: its help, its shared options, its parsing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from tflite_writer import TfliteWriter
from typer.testing import CliRunner

import tunefarm.cli
from tunefarm.cli.base.options import parse_shapes
from tunefarm.cli.main import main, make_app
from tunefarm_tuning.core.errors import InvalidInputError

APP = make_app()
WIDE = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}


def commands(app: typer.Typer) -> list[list[str]]:
    names = [[command.name] for command in app.registered_commands if command.name]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        name = group.typer_instance.info.name
        assert isinstance(name, str)
        if group.hidden is True:  # a second name of a group
            continue
        names += [[name, *rest] for rest in commands(group.typer_instance)]
    return names


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", commands(APP), ids=" ".join)
def test_every_command_has_help_and_the_shared_options(name: list[str]) -> None:
    result = CliRunner().invoke(APP, [*name, "--help"], env=WIDE)
    assert result.exit_code == 0, result.output
    assert "--debug" in result.output
    assert ("--json" in result.output) == (name not in (["worker"], ["device", "join"], ["device", "trim"]))
    assert "Exit codes: 0 done" in result.output


def test_the_commands_of_the_house() -> None:
    top = {name[0] for name in commands(APP)}
    assert {
        "serve",
        "worker",
        "device",
        "tune",
        "models",
        "jobs",
        "keys",
        "records",
        "run",
        "db",
        "version",
    } <= top


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom tunefarm.cli.main import main\ntry: main(['tune', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'tvm', 'numpy', 'onnx', 'onnxruntime', 'sqlalchemy', 'alembic', 'fastapi', 'celery', 'httpx',"
        " 'xgboost', 'psutil', 'uvicorn'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=120, capture_output=True, text=True
    )
    assert "HEAVY []" in done.stdout


def test_wrong_usage_is_2() -> None:
    assert CliRunner().invoke(APP, ["tune"]).exit_code == 2
    assert CliRunner().invoke(APP, ["nothing"]).exit_code == 2
    assert CliRunner().invoke(APP, ["jobs", "list", "--limit", "0"]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "--json"], "Missing argument 'MODEL...'"),
        (["nothing", "--json"], "No such command 'nothing'"),
        (
            ["jobs", "list", "--limit", "0", "--json"],
            "Invalid value for '--limit' / '-n': it must be greater than or equal to 1",
        ),
        (
            ["jobs", "list", "--limit", "99999999999999999999", "--json"],
            "Invalid value for '--limit' / '-n': it must be less than or equal to 1000000000",
        ),
        (
            ["audit", "list", "--limit", "99999999999999999999", "--json"],
            "Invalid value for '--limit' / '-n': it must be less than or equal to 1000000000",
        ),
        (
            ["run", "net.tunefarm", "--threads", "99999", "--json"],
            "Invalid value for '--threads': it must be less than or equal to 1024",
        ),
        (
            ["device", "token", "--minutes", "99999", "--json"],
            "Invalid value for '--minutes': it must be less than or equal to 10080",
        ),
        (["serve", "--port", "abc", "--json"], "Invalid value for '--port': it must be a whole number"),
        (
            ["tune", "a.onnx", "--minutes", "abc", "--json"],
            "Invalid value for '--minutes' / '-m': it must be a number",
        ),
        (["jobs", "list", "--json", "--limt", "1"], "No such option: --limt"),
        (["jobs", "--json"], "No such option: --json"),
        (["jobs", "show", "--json"], "Missing argument 'JOB_ID'"),
        (["jobs", "list", "--sort", "best", "--json"], "Invalid value for '--sort': 'best' is not one of"),
    ],
)
def test_wrong_usage_is_json_where_json_is_asked_for(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(APP, arguments, env=WIDE)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    error = json.loads(line)["error"]
    assert error["code"] == "wrong-usage"
    assert error["message"].startswith(message)
    assert error["usage"].startswith("Usage: ")
    assert json.loads(result.stdout) == json.loads(line)  # as with every other error


def test_a_switch_takes_no_value() -> None:
    result = CliRunner().invoke(APP, ["tune", "x.onnx", "--no-other-shapes=maybe"], env=WIDE)
    assert result.exit_code == 2
    assert "Option '--no-other-shapes' does not take a value" in result.stderr


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("KEEP_MODEL_DAYS=30", "write it like KEEP_MODELS_DAYS"),
        ("TUNEFARM_LEASE_SECONDS=30", "write it like LEASE_SEC"),
        ("DATABASE_URL=sqlite:///x.db", "cannot be given here"),
        ("ROUND_SIZE", "cannot be read"),
    ],
)
def test_a_setting_that_there_is_not_is_no_setting(
    setting: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--home", str(tmp_path / "farm"), "--setting", setting])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "farm").exists()


def test_json_changes_nothing_else() -> None:
    assert CliRunner().invoke(APP, ["version", "--json"]).exit_code == 0
    assert "Usage: " in CliRunner().invoke(APP, ["jobs", "list", "--json", "--help"], env=WIDE).stdout
    plain = CliRunner().invoke(APP, ["models", "show", "--", "--json"], env=WIDE)  # here it is a model's name
    assert "wrong-usage" not in plain.output
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "show", "--json"])
    assert ended.value.code == 2


def test_version() -> None:
    result = CliRunner().invoke(APP, ["version"])
    assert result.exit_code == 0
    assert "apache-tvm" in result.output
    short = CliRunner().invoke(APP, ["--version"])
    assert (short.exit_code, short.output) == (0, f"tunefarm {version('tunefarm')}\n")


def test_devices_are_managed_in_the_plural_too() -> None:
    singular, plural = (
        CliRunner().invoke(APP, [name, "list", "--help"], env=WIDE) for name in ("device", "devices")
    )
    assert plural.exit_code == 0
    assert plural.output.replace("tunefarm devices", "tunefarm device").split() == singular.output.split()
    listed = CliRunner().invoke(APP, ["--help"], env=WIDE).output
    assert "│ device " in listed
    assert "│ devices " not in listed, "it is listed once"


def test_shapes() -> None:
    assert parse_shapes(["x=1,3,224,224", "a=b:0=2"]) == {"x": [1, 3, 224, 224], "a=b:0": [2]}
    assert parse_shapes(None) == {}


@pytest.mark.parametrize(
    "texts", [["x"], ["=1"], ["x="], ["x=a"], ["x=1,,2"], ["x=0"], ["x=-1"], ["x=1", "x=2"]]
)
def test_shapes_that_are_none(texts: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_shapes(texts)
    assert caught.value.code == "bad-shape"


def test_a_program_of_pytorch_is_loaded_for_those_alone_who_trust_it(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"PK\x03\x04")
    arguments = ["models", "convert", str(tmp_path / "net.pt2"), str(tmp_path / "net.onnx"), "--json"]
    result = CliRunner().invoke(APP, arguments)
    assert result.exit_code != 0
    assert "untrusted-program" in result.output
    assert list(tmp_path.iterdir()) == [tmp_path / "net.pt2"]


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("name", ["NET.TFLITE", "net"])
def test_a_tflite_file_is_known_by_its_bytes(name: str, tmp_path: Path) -> None:
    net = TfliteWriter()
    (tmp_path / name).write_bytes(net.data([net.op("RELU", [net.input((2, 3))], (2, 3))]))
    converted = tmp_path / "net.onnx"
    result = CliRunner().invoke(APP, ["models", "convert", str(tmp_path / name), str(converted), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["path"] == str(converted)
    assert document["operators"] == [["Relu", 1]]
    assert converted.stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [("net.tflite", b"something", "not-tflite"), ("net", b"\x1c\0\0\0TFL3", "invalid-tflite")],
)
def test_a_broken_tflite_file_is_no_program_of_pytorch(
    name: str, data: bytes, code: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    arguments = ["models", "convert", str(tmp_path / name), str(tmp_path / "net.onnx"), "--json"]
    result = CliRunner().invoke(APP, arguments)
    assert result.exit_code != 0
    assert f'"{code}"' in result.output
    assert list(tmp_path.iterdir()) == [tmp_path / name]


def test_a_missing_file_is_not_converted(tmp_path: Path) -> None:
    arguments = ["models", "convert", str(tmp_path / "net.pt2"), str(tmp_path / "net.onnx"), "--json"]
    result = CliRunner().invoke(APP, arguments)
    assert result.exit_code != 0
    assert "no-such-file" in result.output


def test_every_command_takes_parts_of_ids_and_names() -> None:
    folder = Path(tunefarm.cli.__file__).parent
    for kind, finder in (("JobId", "find_job"), ("ModelId", "find_model"), ("SweepId", "find_sweep")):
        commands_of_kind = [
            function
            for file in folder.rglob("*.py")
            for function in ast.walk(ast.parse(file.read_text()))
            if isinstance(function, ast.FunctionDef)
            and any(getattr(argument.annotation, "id", "") == kind for argument in function.args.args)
        ]
        assert commands_of_kind, kind
        for function in commands_of_kind:
            called = {
                node.func.id
                for node in ast.walk(function)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert finder in called, f"{function.name} takes whole ids alone"
