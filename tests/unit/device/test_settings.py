"""The settings of an agent, and its errors for wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process.running import TVM_ENVIRONMENT
from tunefarm_workers.device.rpc.process import server_environment
from tunefarm_workers.device.settings import is_open_to_others, read_settings

ENVIRONMENT = {"TUNEFARM_URL": "http://farm:8000", "TUNEFARM_API_KEY": "tfk_secret"}


def test_the_environment_is_enough() -> None:
    settings = read_settings([], {**ENVIRONMENT, "TUNEFARM_DEVICE_NAME": "box"})
    assert (settings.url, settings.api_key) == ("http://farm:8000", "tfk_secret")
    assert (settings.name, settings.device_key) == ("box", "local")
    assert settings.work_dir.is_absolute()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://farm:8000", True),
        ("http://10.0.0.5:8000", True),
        ("http://[2001:db8::1]:8000", True),
        ("http://127.0.0.1.evil.example", True),
        ("https://farm.example", False),
        ("http://127.0.0.1:8000", False),
        ("http://[::1]:8000", False),
        ("http://localhost:8000", False),
    ],
)
def test_who_can_read_the_credential_on_its_way(url: str, expected: bool) -> None:
    assert is_open_to_others(url) is expected


def test_options_win(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("tfk_other\n")
    settings = read_settings(
        [
            "--url=http://x",
            f"--api-key-file={key_file}",
            "--gateway=[::1]:9443",
            "--name=a",
            "--device-key=b",
        ],
        ENVIRONMENT,
    )
    assert (settings.url, settings.api_key, settings.gateway) == ("http://x", "tfk_other", ("::1", 9443))


def test_the_key_is_not_shown() -> None:
    assert "tfk_secret" not in repr(read_settings([], ENVIRONMENT))


@pytest.mark.parametrize(
    ("arguments", "environment", "code"),
    [
        ([], {"TUNEFARM_API_KEY": "k"}, "no-url"),
        ([], {"TUNEFARM_URL": "http://x"}, "no-api-key"),
        (["--api-key-file=/no/such/file"], ENVIRONMENT, "no-api-key"),
        (["--name=two words"], ENVIRONMENT, "invalid-device"),
        (["--device-key="], ENVIRONMENT, "invalid-device"),
        (["--tracker=h:9190"], ENVIRONMENT, "tracker-removed"),
        (["--host=10.0.0.17"], ENVIRONMENT, "tracker-removed"),
        (["--port=9000"], ENVIRONMENT, "tracker-removed"),
        (["--advertise=box"], ENVIRONMENT, "tracker-removed"),
    ],
)
def test_what_is_wrong_has_a_code(arguments: list[str], environment: dict[str, str], code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_settings(arguments, environment)
    assert caught.value.code == code


def test_who_named_a_tracker_is_told_of_the_gateway() -> None:
    with pytest.raises(InvalidInputError, match=r"--tracker was removed: .*--gateway"):
        read_settings(["--tracker=h:9190"], ENVIRONMENT)


def test_a_farm_on_this_machine_leaves_its_url_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "farm.json"
    arguments = [f"--farm-file={file}"]
    for text in (None, "", "{", "[]", '{"url": 3}', '{"pid": 1}'):
        if text is not None:
            file.write_text(text)
        with pytest.raises(InvalidInputError) as caught:
            read_settings(arguments, ENVIRONMENT)
        assert caught.value.code == "no-url", "another farm's URL in the environment is not taken instead"
    file.write_text('{"url": "http://127.0.0.1:3", "pid": 1}')
    assert read_settings(arguments, ENVIRONMENT).url == "http://127.0.0.1:3"


def test_the_servers_environment_holds_no_credentials() -> None:
    environment = server_environment({**ENVIRONMENT, "PATH": "/bin"}, num_threads=3)
    assert environment == {
        "PATH": "/bin",
        "TVM_NUM_THREADS": "3",
        "OMP_NUM_THREADS": "3",
        "TVM_USE_RUNTIME_LIB": "1",
        **TVM_ENVIRONMENT,
    }
    of_gpu = server_environment({}, num_threads=3, gpu_uuid="GPU-1")
    assert "TVM_USE_RUNTIME_LIB" not in of_gpu, "its sessions check whole artifacts"
    bound = server_environment({"TVM_BIND_THREADS": "1"}, num_threads=3)
    assert bound["TVM_BIND_THREADS"] == "1"


def test_where_the_key_comes_from(tmp_path: Path) -> None:
    named = tmp_path / "named"
    named.write_text("tfk_named\n")
    arguments = [f"--work-dir={tmp_path}"]

    def key(*more: str, **environment: str) -> tuple[str | None, str | None]:
        settings = read_settings([*arguments, *more], {"TUNEFARM_URL": "http://x", **environment})
        return settings.token, settings.api_key

    assert key("--token=t") == ("t", None)
    assert key(TUNEFARM_ENROLMENT_TOKEN="t") == ("t", None)
    assert key(f"--token-file={named}") == ("tfk_named", None)
    assert key(TUNEFARM_API_KEY="tfk_env") == (None, "tfk_env")
    (tmp_path / "credential").write_text("tfk_own\n")
    assert key(TUNEFARM_API_KEY="tfk_env") == (None, "tfk_own")
    assert key(TUNEFARM_API_KEY_FILE=str(named)) == (None, "tfk_own")
    assert key(f"--api-key-file={named}") == (None, "tfk_named")
    assert key("--token=t") == ("t", "tfk_own")
    (tmp_path / "credential").write_text("")
    with pytest.raises(InvalidInputError, match="has no device's credential"):
        key()
