"""Measuring the peak of a device, here and over RPC."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import DeviceInfo
from tunefarm_tuning.measure.peak import Peak, measure_peak
from tunefarm_tuning.process import Access, ChildClosed, ChildProcess
from tunefarm_tuning.target.parse import detect_host_target, parse_target
from tunefarm_tuning.testing.local_rpc import local_rpc

LITTLE_BYTES = 64 << 20
"""Of memory: the smaller working sets are left then, which take no time."""


def check(peak: Peak) -> None:
    assert peak.threads == 2
    assert set(peak.flops_per_sec) == {"float32", "float64"}
    for rate in peak.flops_per_sec.values():
        assert 1e8 < rate.one_core <= rate.all_cores < 1e14
    assert [bandwidth.working_set_bytes for bandwidth in peak.bandwidth] == [1 << 18, 1 << 20, 1 << 22]
    for bandwidth in peak.bandwidth:
        assert 1e7 < bandwidth.bytes_per_sec.one_core <= bandwidth.bytes_per_sec.all_cores < 1e14
    assert peak.missing == ""


def test_of_this_machine() -> None:
    check(measure_peak(detect_host_target(), threads=2, memory_bytes=LITTLE_BYTES))


@pytest.mark.exhaustive
def test_of_a_device_over_rpc() -> None:
    with local_rpc(threads=2) as server:
        peak = measure_peak(
            parse_target(f"llvm -mcpu={detect_host_target().get('mcpu')}"),
            server.device,
            memory_bytes=LITTLE_BYTES,
        )
        check(peak)
        assert "/test/" in peak.key, "the device's model"
        again = measure_peak(
            detect_host_target(), server.device, threads=1, memory_bytes=1
        )  # the session before is over: the device is free
    assert (again.threads, again.bandwidth) == (1, ())
    assert "too little memory" in again.missing
    assert again.flops_per_sec["float32"].one_core == again.flops_per_sec["float32"].all_cores


def test_a_target_without_fused_multiply_adds_has_no_peak_of_them() -> None:
    peak = measure_peak(parse_target("llvm -mcpu=x86-64"), threads=1, memory_bytes=LITTLE_BYTES)
    assert peak.flops_per_sec == {}
    assert peak.missing.startswith("its target has no fused multiply-adds")
    assert len(peak.bandwidth) == 3


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("target", "width", "instruction"),
    [
        ("llvm -mcpu=skylake-avx512", 64, "vfmadd"),
        ("llvm -mcpu=haswell", 32, "vfmadd"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", 16, "fmla"),
    ],
)
def test_the_loop_of_other_cpus_is_nothing_but_fused_multiply_adds(
    target: str, width: int, instruction: str, tmp_path: Path
) -> None:
    with ChildProcess(
        "tunefarm_tuning.tvm.children.peak", access=Access(writes=(tmp_path,), programs=True)
    ) as child:
        params = {
            "target": parse_target(target).to_json(),
            "threads": 2,
            "dtypes": ["float32", "float64"],
            "work_dir": str(tmp_path),
        }
        loops = child.call("loops", params, timeout_sec=300)
    assert loops["vector_bytes"] == width
    assert loops["missing"] == {}
    for dtype in ("float32", "float64"):
        fmas = [line for line in loops["loops"][dtype] if line.startswith(instruction)]
        assert fmas
        assert len(fmas) % 10 == 0


def test_a_device_that_is_away() -> None:
    away = RemoteDevice(
        tracker_host="127.0.0.1", tracker_port=1, key="nobody", info=DeviceInfo(model="m", num_cores=1)
    )
    with pytest.raises(DeviceLostError, match="cannot open a session"):
        measure_peak(detect_host_target(), away)


def test_it_can_be_cancelled() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(ChildClosed):
        measure_peak(detect_host_target(), cancellation=cancellation)
