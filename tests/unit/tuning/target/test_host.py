"""The name of this machine's device model."""

from __future__ import annotations

import pytest

from tunefarm_tuning.target import host, parse
from tunefarm_tuning.target.host import core_of_parts, cpu_fields, device_model, host_device_model, num_cores


@pytest.mark.parametrize(
    ("cpu", "cores", "model"),
    [
        (
            {
                "model name": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
                "cpu family": "6",
                "model": "143",
            },
            4,
            "intel-xeon-platinum-8481c-f6m143-4c",
        ),
        (
            {"model name": "AMD EPYC 9B45 96-Core Processor", "cpu family": "26", "model": "2"},
            2,
            "amd-epyc-9b45-f26m2-2c",
        ),
        ({"CPU implementer": "0x41", "CPU part": "0xd0c"}, 64, "arm-0x41-0xd0c-64c"),  # Graviton2
        ({"CPU implementer": "0x41", "CPU part": "0xd40"}, 64, "arm-0x41-0xd40-64c"),  # Graviton3
        ({"CPU implementer": "0x41", "CPU part": "0xd05 0xd0b"}, 8, "arm-0x41-0xd05-0xd0b-8c"),
        ({"uarch": "sifive,u74-mc"}, 4, "sifive-u74-mc-4c"),
        ({}, 4, None),
    ],
)
def test_device_models_are_slugs(cpu: dict[str, str], cores: int, model: str | None) -> None:
    slug = device_model(cpu, cores)
    assert slug.endswith(f"-{cores}c")
    if model:
        assert slug.endswith(model)  # a board's name may stand before it


def test_fields_of_a_processor_are_as_linux_writes_them() -> None:
    core = "processor\t: {}\nBogoMIPS\t: 48.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: {}\n\n"
    little_first = "".join(core.format(number, part) for number, part in enumerate(["0xd05", "0xd0b"] * 2))
    fields = cpu_fields(little_first)
    assert (fields["CPU implementer"], fields["CPU part"]) == ("0x41", "0xd05 0xd0b")
    assert cpu_fields(core.format(0, "0xd08"))["CPU part"] == "0xd08"
    assert "CPU part" not in cpu_fields("model name\t: AMD EPYC\nflags\t\t: fpu sse2\n\n")
    assert cpu_fields("") == {}


def test_cores_that_the_process_may_not_use_do_not_count() -> None:
    """An RK3588 under ``taskset -c 4-7`` lends Cortex-A76 alone; under ``0-3`` it is another device, with as many cores."""
    block = "processor\t: {}\nCPU implementer\t: 0x41\nCPU part\t: {}\n\n"
    board = "".join(block.format(number, part) for number, part in enumerate(["0xd05"] * 4 + ["0xd0b"] * 4))
    board += "Serial\t\t: 0\n"
    models = [
        device_model(cpu_fields(board, used), 4) for used in ({0, 1, 2, 3}, {4, 5, 6, 7}, {3, 4}, {99}, ())
    ]
    assert [model[model.index("arm-") :] for model in models] == [
        "arm-0x41-0xd05-4c",
        "arm-0x41-0xd0b-4c",
        *["arm-0x41-0xd05-0xd0b-4c"] * 3,
    ]


def test_llvm_is_told_of_the_cores_in_use_where_a_board_has_others() -> None:
    both = "0xd05 0xd0b"
    assert [core_of_parts(both, used) for used in ("0xd05", "0xd0b", both, "0xfff")] == [
        "cortex-a55",
        "cortex-a76",
        "",
        "",
    ]
    assert core_of_parts("0xd0b", "0xd0b") == "", "the whole board: LLVM knows more names"
    assert set(host._ARM_CORES.values()) <= set(parse._table()["cpus"]["aarch64"])


def test_this_machine_has_a_model_and_cores() -> None:
    assert num_cores() >= 1
    assert host_device_model().endswith(f"-{num_cores()}c")
    assert host_device_model() == host_device_model()
