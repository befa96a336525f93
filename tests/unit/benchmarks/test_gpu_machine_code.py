"""Instructions are counted by their names, and a table says what kernels ask for."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import code_run
from benchmarks.gpu.code_table import table
from benchmarks.gpu.machine_code import count

LISTING = """
	.section	.text.main_kernel,"ax",@progbits
	.align	128
main_kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/             @!UP1 STL [R1], R4 ;
        /*0030*/                   LDL.LU R4, [R1] ;
        /*0040*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0050*/                   HGMMA.64x128x16.F32 R24, gdesc[UR8], R24 ;
        /*0060*/                   UTCHMMA gdesc[UR8], gdesc[UR10], tmem[UR4], tmem[UR6], idesc[UR7], UP0 ;
        /*0070*/                   FFMA R4, R4, R5, R6 ;
        /*0080*/                   LDS.128 R4, [R2] ;
        /*0090*/                   EXIT ;
        /*00a0*/                   NOP ;
	.section	.text.other,"ax",@progbits
        /*0000*/                   EXIT ;
"""


def test_instructions_are_counted_for_each_kernel() -> None:
    counts = count(LISTING)
    assert counts["main_kernel"] == {
        "mma": 1,
        "wgmma": 1,
        "tcgen05": 1,
        "spills": 2,
        "global": 1,
        "shared": 1,
        "float": 1,
        "all": 10,
    }
    assert counts["other"]["all"] == 1
    assert count("") == {}


def launch(**facts: Any) -> dict[str, Any]:
    plain = {
        "kernel": "main_kernel",
        "blocks": [7, 2, 1],
        "threads": [32, 4, 1],
        "static_bytes": 1536,
        "dynamic_bytes": 0,
        "registers": 64,
        "stack_bytes": 0,
        "instructions": {"mma": 8},
    }
    return {**plain, **facts}


def line(how: str, arch: str, *built: dict[str, Any]) -> dict[str, Any]:
    about = {"network": "net", "dtype": "float16", "kernel": "matmul", "calls": 3}
    return {**about, "how": how, "arch": arch, "built": list(built)}


def test_the_table_shows_each_architecture_and_what_does_not_fit() -> None:
    lines = [
        line("default", "sm_75", {"launches": [launch(dynamic_bytes=64 << 10)]}),
        line("default", "sm_90", {"launches": [launch(stack_bytes=1072)]}),
        line(
            "searched",
            "sm_90",
            {"estimate": {"results": 64.0}, "launches": [launch()]},
            {"failed": "too much"},
        ),
    ]
    text = table(lines)
    assert "| default | net | float16 | sm_75 | 1 | 0 | 1 | 0 | 0 | 0 % | 1 |" in text
    assert "| default | net | float16 | sm_90 | 1 | 0 | 0 | 1 | 1 | 50 % | 1 |" in text
    assert "| searched | net | float16 | sm_90 | 2 | 1 | 0 | 0 | 0 | 50 % | 1 |" in text
    assert "is in 0 of 3 kernels" in text
    assert "| net | float16 | sm_90 | matmul | 14 | 128 | 1.5 | 64, 50 % | 64 | 8 mma |" in text
    assert "| net | float16 | sm_90 | matmul | not built: too much |" in text
    assert (
        "| matmul | 3 | 14 | 128 | 1.5 | it asks for 67072 bytes of shared memory, of at most 65536 "
        "| 64 + 1072, 50 % | 8 mma |"
    ) in text


def test_without_a_compiler_it_says_so(monkeypatch: Any, capsys: Any, tmp_path: Any) -> None:
    monkeypatch.setattr("tunefarm_tuning.target.toolchain.find_nvcc", lambda: None)
    assert code_run.main(["--output", str(tmp_path / "code.jsonl")]) == code_run.NO_COMPILER == 4
    assert "need nvcc" in capsys.readouterr().err
