"""The state of a GPU during a timing, and the meaning of its errors."""

from __future__ import annotations

import pytest

from tunefarm_tuning.measure.gpu.cuda_errors import is_devices_fault, poisons, setups_fault
from tunefarm_tuning.measure.gpu.state import GpuState, clock_reasons


def test_it_survives_json() -> None:
    full = GpuState(
        clock_mhz=1980.0,
        memory_clock_mhz=2619.0,
        temperature_celsius=41.0,
        power_watts=70.5,
        memory_used_bytes=4e9,
        throttle=("thermal",),
        used_by="python3 (pid 7)",
    )
    assert GpuState.from_json(full.to_json()) == full
    assert GpuState().to_json() == {}
    assert GpuState.from_json({}) == GpuState()


def test_a_device_may_say_anything() -> None:
    odd = {
        "clock_mhz": float("nan"),
        "memory_clock_mhz": "fast",
        "temperature_celsius": True,
        "power_watts": 10**400,
        "throttle": "hot",
    }
    assert GpuState.from_json(odd) == GpuState()


def test_reasons_have_names() -> None:
    assert clock_reasons(0) == clock_reasons(0x1) == ()
    assert clock_reasons(0x4 | 0x20 | 0x80) == ("power-cap", "thermal", "power-brake")
    assert clock_reasons(1 << 40) == ()


@pytest.mark.parametrize(
    ("bits", "clock_mhz", "held_back"),
    [
        (0x1, 1980.0, ""),
        (0x4, 1900.0, ""),  # a power cap is where many a GPU works all day
        (0x4, 1200.0, ""),
        (0x4 | 0x2, 1200.0, "its clock was 1200 MHz, 1980 at calibration (application-clocks, power-cap)"),
        (0x0, 1200.0, "its clock was 1200 MHz, 1980 at calibration"),
        (0x8, 1980.0, "throttled: hardware-slowdown"),
        (0x20 | 0x40, 1980.0, "throttled: thermal, hardware-thermal"),
        (0x80, 1980.0, "throttled: power-brake"),
    ],
)
def test_what_holds_a_gpu_back(bits: int, clock_mhz: float, held_back: str) -> None:
    state = GpuState(clock_mhz=clock_mhz, throttle=clock_reasons(bits))
    assert state.held_back(1980.0) == held_back
    if "calibration" in held_back:
        assert state.held_back(None) == ""


def test_a_power_cap_is_told_where_it_costs_much() -> None:
    capped = GpuState(clock_mhz=1200.0, throttle=("power-cap",))
    assert capped.capped(1980.0) == "its clock was 1200 MHz, 1980 at calibration"
    assert capped.capped(1300.0) == capped.capped(None) == ""
    assert GpuState(clock_mhz=1200.0).capped(1980.0) == ""


@pytest.mark.parametrize(
    "text",
    [
        "CUDA: an illegal memory access was encountered",
        "Check failed: (e == cudaSuccess) is false: CUDA: misaligned address",
        "CUDA: unspecified launch failure",
        "CUDALaunch Error: CUDA_ERROR_ILLEGAL_ADDRESS",
        "cuModuleLoadData failed: CUDA_ERROR_LAUNCH_FAILED",
        "CUDA: device-side assert triggered",
    ],
)
def test_errors_after_which_nothing_runs(text: str) -> None:
    assert poisons(text)
    assert not is_devices_fault(text)


@pytest.mark.parametrize(
    "text",
    ["CUDALaunch Error: CUDA_ERROR_INVALID_VALUE", "CUDA: too many resources requested for launch", ""],
)
def test_errors_of_a_launch_alone(text: str) -> None:
    assert not poisons(text)
    assert not is_devices_fault(text)


def test_errors_of_the_gpu() -> None:
    assert is_devices_fault("CUDA: uncorrectable ECC error encountered")
    assert is_devices_fault("CUDA: CUDA-capable device(s) is/are busy or unavailable")
    assert is_devices_fault("CUDA_ERROR_NO_DEVICE")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("CUDA: CUDA driver version is insufficient for CUDA runtime version", "install a newer driver"),
        ("cuModuleLoadData failed with error: CUDA_ERROR_NO_BINARY_FOR_GPU", "another GPU architecture"),
        (
            "InternalError: Check failed: (allow_missing) is false: Device API cuda is not enabled.",
            "libcudart.so.13",
        ),
        (
            "Library binary was created using {cuda} but a loader of that name is not registered.",
            "libcuda.so.1",
        ),
        ("CUDA: no kernel image is available for execution on the device", "another GPU architecture"),
    ],
)
def test_errors_of_the_set_up(text: str, says: str) -> None:
    assert says in str(setups_fault(text))
    assert is_devices_fault(text)
    assert setups_fault("CUDA: an illegal memory access was encountered") is None
