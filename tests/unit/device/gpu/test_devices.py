"""The devices of a machine with GPUs, from the driver's answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from nvml_answers import Driver, uuid

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.gpu import nvml
from tunefarm_tuning.target.parse import parse_target
from tunefarm_workers.device.description import describe
from tunefarm_workers.device.fleet import child_environment, command_of
from tunefarm_workers.device.gpu import driver as gpu
from tunefarm_workers.device.gpu.devices import LentDevice, devices_of
from tunefarm_workers.device.settings import read_settings

ENVIRONMENT = {"TUNEFARM_URL": "http://farm:8000", "TUNEFARM_API_KEY": "tfk_key"}


def lent(*arguments: str, **environment: str) -> list[LentDevice]:
    variables = {**ENVIRONMENT, **environment}
    return devices_of(read_settings(list(arguments), variables), variables)


def names(*arguments: str, **environment: str) -> list[str]:
    return [device.settings.name for device in lent(*arguments, **environment)]


def test_gpus_are_described(driver: Driver) -> None:
    assert gpu.find() == []
    driver.is_as("eight")
    gpus = gpu.find()
    assert [card.index for card in gpus] == list(range(8))
    assert gpus[2].to_json() == {
        "index": 2,
        "uuid": uuid(2),
        "name": "NVIDIA H100 80GB HBM3",
        "arch": "sm_90",
        "driver": "550.54.15",
        "memory_bytes": 85520809984,
        "clock_max_mhz": 1980.0,
        "memory_clock_max_mhz": 2619.0,
        "power_limit_watts": 700.0,
        "mig": False,
    }
    assert gpus[0].model == "nvidia-h100-80gb-hbm3"


def test_what_a_driver_does_not_tell_is_left_out(driver: Driver) -> None:
    driver.is_as("unsupported")
    (only,) = gpu.find()
    assert (only.arch, only.memory_bytes, only.power_limit_watts, only.mig) == ("sm_121", None, None, None)
    assert "memory_bytes" not in only.to_json()
    driver.has("odd")
    assert "arch" not in gpu.find()[0].to_json()


def test_a_gpu_that_fell_off_the_bus_is_left_out(driver: Driver) -> None:
    driver.is_as("lost")
    gpus = gpu.find()
    assert [card.index for card in gpus] == [0, 1, 2, 4, 5, 6, 7]
    assert gpus[4].arch == ""  # listed still, and nothing more
    assert [card.index for card in gpu.choose(gpus, "0,4")] == [0, 4]
    with pytest.raises(InvalidInputError) as caught:
        gpu.choose(gpus, "3")
    assert caught.value.code == "no-such-gpu"


def test_a_gpu_that_is_cut_into_slices_says_so(driver: Driver) -> None:
    driver.is_as("mig")
    assert [card.to_json()["mig"] for card in gpu.find()] == [True, False]


def test_a_driver_that_does_not_work_is_none(driver: Driver) -> None:
    driver.fails()
    assert gpu.find() == []


def test_what_asks_the_driver_may_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_BINDING", "no_such_binding")
    with pytest.raises(InvalidInputError, match=r"nvidia-ml-py.*install tunefarm\[device\]") as caught:
        gpu.find(nvml.NvmlLibrary())
    assert caught.value.code == "no-nvml"
    nvml.preload()


def test_gpus_are_chosen(driver: Driver) -> None:
    driver.has("H100", "H100", "H100")
    gpus = gpu.find()

    def chosen(wanted: str) -> list[int]:
        return [card.index for card in gpu.choose(gpus, wanted)]

    assert chosen("all") == [0, 1, 2]
    assert chosen("2, 0,2") == [0, 2]
    assert chosen(uuid(1)) == [1]
    for wrong in ("3", "0,x", "GPU-0", "1.0"):  # the third begins them all
        with pytest.raises(InvalidInputError, match="its driver lists 0 ") as caught:
            chosen(wrong)
        assert caught.value.code == "no-such-gpu"


def test_the_cpu_is_lent_by_default(driver: Driver) -> None:
    driver.has("H100")
    (device,) = lent("--name=box")
    assert device.gpu is None
    assert (device.settings.name, device.settings.target) == ("box", "host")


def test_one_gpu_has_the_machines_name(driver: Driver) -> None:
    driver.has("H100")
    for option in ("--target=cuda", "--gpu=all", "--gpu=0", "--target=cuda/sm_90a"):
        (device,) = lent("--name=box", option)
        assert device.gpu is not None
        assert device.settings.name == "box"
        assert device.settings.gpu == device.gpu.uuid == uuid(0)
    assert device.settings.target == "cuda/sm_90a"  # what a person said, as long as it can run there
    (device,) = lent("--target=cuda")
    assert (device.settings.target, "gpu0" in device.settings.name) == ("cuda/sm_90", False)


def test_each_of_several_gpus_is_a_device(driver: Driver, tmp_path: Path) -> None:
    driver.has("H100", "H100", "H100")
    devices = lent("--name=box", "--target=cuda", f"--work-dir={tmp_path}")
    assert [device.settings.name for device in devices] == ["box-gpu0", "box-gpu1", "box-gpu2"]
    assert [device.settings.work_dir for device in devices] == [tmp_path / f"gpu{n}" for n in range(3)]
    assert [device.settings.gpu for device in devices] == [uuid(n) for n in range(3)]
    assert names("--name=box", "--gpu=0,2") == ["box-gpu0", "box-gpu2"]
    assert names("--name=box", "--target=cuda", CUDA_VISIBLE_DEVICES="1,2") == ["box-gpu1", "box-gpu2"]
    assert names("--name=its-own", "--gpu=1") == ["its-own"]
    (unnamed,) = names("--gpu=1")
    assert unnamed.endswith("-gpu1")


def test_the_agent_of_a_gpu_understands_its_command(driver: Driver, tmp_path: Path) -> None:
    driver.has("H100", "H100")
    variables = {**ENVIRONMENT, "TUNEFARM_ENROLMENT_TOKEN": "tfk_token"}
    options = ["--name=box", "--gpu=all", f"--work-dir={tmp_path}", "--gateway=[::1]:9443"]
    for device in devices_of(read_settings(options, variables), variables):
        device.settings.work_dir.mkdir()
        credential = device.settings.work_dir / "credential"
        credential.write_text("tfk_own\n")
        own = child_environment(variables)
        (again,) = devices_of(read_settings(command_of(device.settings)[3:], own), own)
        assert again.gpu == device.gpu
        for name in ("name", "target", "work_dir", "gateway", "gpu"):
            assert getattr(again.settings, name) == getattr(device.settings, name)
        assert (again.settings.token, again.settings.api_key) == (None, "tfk_own")


def test_a_gpu_tells_more_of_its_target_than_its_architecture(driver: Driver) -> None:
    driver.is_as("eight")
    (lone,) = lent("--target=cuda", "--gpu=0")
    target = describe(lone.settings, lone.gpu).target
    assert (target.get("arch"), target.get("l2_cache_size_bytes")) == ("sm_90", 50 << 20)
    (device,) = lent("--target=cuda/sm_90a", "--gpu=0")
    assert describe(device.settings, device.gpu).target == parse_target("cuda/sm_90a")


@pytest.mark.parametrize(
    ("there", "arguments", "code"),
    [
        ([], ["--gpu=all"], "no-such-gpu"),
        ([], ["--gpu=0"], "no-such-gpu"),
        ([], ["--target=cuda"], "no-such-gpu"),
        (["H100", "A10"], ["--target=cuda"], "gpus-differ"),
        (["H100"], ["--gpu=0", "--target=llvm"], "invalid-device"),
        (["A10"], ["--target=cuda/sm_90"], "invalid-device"),
        (["H100"], ["--target=cuda/sm_80"], "invalid-device"),
        (["odd"], ["--target=cuda"], "invalid-device"),
        (["H100", "H100"], ["--gpu=all", f"--name={'x' * 98}"], "invalid-device"),
    ],
)
def test_what_cannot_be_lent_has_a_code(
    driver: Driver, there: list[str], arguments: list[str], code: str
) -> None:
    driver.has(*there)
    with pytest.raises(InvalidInputError) as caught:
        lent(*arguments)
    assert caught.value.code == code


def test_a_target_of_another_architecture_is_refused_by_both_names(driver: Driver) -> None:
    """Libraries hold machine code of one architecture, which no other one runs."""
    driver.has("H100")
    with pytest.raises(InvalidInputError, match=r"sm_80 .* NVIDIA H100 80GB HBM3, which is sm_90"):
        lent("--target=cuda/sm_80")


def test_without_a_gpu_the_message_says_so_and_what_to_do(driver: Driver) -> None:
    driver.has()
    with pytest.raises(InvalidInputError, match=r"no GPU was found .* Install NVIDIA's driver .* cuda/sm_NN"):
        lent("--target=cuda")
    (device,) = lent("--target=cuda/sm_90")
    assert device.gpu is None


def test_an_empty_list_of_gpus_is_none(driver: Driver) -> None:
    driver.has("H100")
    for empty in ("", " "):
        with pytest.raises(InvalidInputError, match="CUDA_VISIBLE_DEVICES is empty") as caught:
            lent("--target=cuda", CUDA_VISIBLE_DEVICES=empty)
        assert caught.value.code == "no-such-gpu"
        assert names("--name=box", "--gpu=0", CUDA_VISIBLE_DEVICES=empty) == ["box"]


def test_credentials_are_the_gpus_own(driver: Driver, tmp_path: Path) -> None:
    """A machine that was enrolled starts again with neither token nor key."""
    driver.has("H100", "H100")
    variables = {"TUNEFARM_URL": "http://x"}
    for target in ("cuda", "cuda/sm_90", "nvidia/nvidia-h100"):
        options = ["--name=box", f"--target={target}", f"--work-dir={tmp_path}"]
        assert [
            device.settings.api_key for device in devices_of(read_settings(options, variables), variables)
        ] == [
            None,
            None,
        ]
        with pytest.raises(InvalidInputError) as caught:
            devices_of(read_settings([*options, "--gpu=1"], variables), variables)
        assert caught.value.code == "no-api-key"
    with pytest.raises(InvalidInputError) as caught:
        devices_of(read_settings(["--target=llvm"], variables), variables)
    assert caught.value.code == "no-api-key"


def test_gpus_that_differ_are_joined_by_kind(driver: Driver) -> None:
    driver.has("H100", "A10", "H100")
    assert names("--name=box", "--gpu=0,2") == ["box-gpu0", "box-gpu2"]
    assert names("--name=box-a10", "--gpu=1") == ["box-a10"]


def test_without_a_driver_the_target_is_believed(driver: Driver) -> None:
    (device,) = lent("--name=box", "--target=cuda/sm_90")
    assert device.gpu is None
    with pytest.raises(InvalidInputError) as caught:
        devices_of(read_settings(["--target=cuda/sm_90"], {"TUNEFARM_URL": "http://x"}), {})
    assert caught.value.code == "no-api-key"
