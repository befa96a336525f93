"""The name of this machine's device model."""

from __future__ import annotations

import pytest

from tunefarm_tuning.target.host import device_model, host_device_model, num_cores


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
        ({"CPU implementer": "0x41", "CPU part": "0xd0c"}, 8, None),
        ({"cpu implementer": "0x41", "cpu part": "0xd0c"}, 8, "arm-0x41-0xd0c-8c"),
    ],
)
def test_device_models_are_slugs(cpu: dict[str, str], cores: int, model: str | None) -> None:
    slug = device_model(cpu, cores)
    assert slug.endswith(f"-{cores}c")
    if model:
        assert slug.endswith(model)  # a board's name may stand before it


def test_this_machine_has_a_model_and_cores() -> None:
    assert num_cores() >= 1
    assert host_device_model().endswith(f"-{num_cores()}c")
    assert host_device_model() == host_device_model()
