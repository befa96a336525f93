"""StableHLO programs through the whole conversion: parsed in a child, written as ONNX, compared with XLA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx_reference import UNOPTIMISED, built_outputs
from stablehlo_networks import NETWORKS
from stablehlo_run import assert_like_jax, converted, exported
from typer.testing import CliRunner

import tunefarm_tuning.frontend.conversion as home
from tunefarm.cli.main import make_app
from tunefarm_convert import FileFormat, file_format_of
from tunefarm_tuning import ImportLimits, import_stablehlo
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.frontend.conversion import convert_stablehlo
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

LIMITS = ImportLimits(memory_bytes=8 << 30)


def simple(x: Any) -> Any:
    return {"small": jnp.tanh(x), "place": jnp.argmax(x, 1), "above": x > 0}


_DIFFERENCES = """
%z = stablehlo.constant dense<1.0> : tensor<f32>
%0 = "stablehlo.reduce"(%x, %z) ({
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %1 = stablehlo.subtract %a, %b : tensor<f32>
  stablehlo.return %1 : tensor<f32>
}) {dimensions = array<i64: 0>} : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
"""


@pytest.fixture(scope="module")
def program() -> Any:
    return exported(simple, np.zeros((3, 4), np.float32))


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", NETWORKS)
def test_tvm_computes_what_jax_does(name: str, tmp_path: Path) -> None:
    function, inputs = NETWORKS[name]
    model = assert_like_jax(function, inputs, rtol=1e-3, atol=1e-4)
    onnx.save(model, tmp_path / "net.onnx")
    outputs = built_outputs(load_relax(tmp_path / "net.onnx", Binding(), UNOPTIMISED), [inputs], tmp_path)
    for output, wanted in zip(outputs, jax.tree_util.tree_leaves(jax.jit(function)(inputs)), strict=True):
        np.testing.assert_allclose(output, np.asarray(wanted), rtol=1e-3, atol=1e-4)


def test_the_compiled_network_keeps_the_program_s_layout(tmp_path: Path) -> None:
    """The transposes that ONNX needs, and those of the layout pass, leave nothing; batch norms are in the weights."""
    function, inputs = NETWORKS["resnet"]
    onnx.save(converted(exported(function, inputs).mlir_module_serialized), tmp_path / "net.onnx")
    module = load_relax(tmp_path / "net.onnx", Binding(), Target(kind="llvm")).module
    kernels = [variable.name_hint for variable in module.get_global_vars()]
    assert len([name for name in kernels if "conv2d" in name]) == 6
    assert not [name for name in kernels if "transpose" in name or "multiply" in name], kernels


@pytest.mark.exhaustive
def test_every_form_of_a_program_becomes_the_same_file(program: Any, tmp_path: Path) -> None:
    """Text, StableHLO's portable bytecode, the output of JAX's export, and the object itself."""
    for name, data in {
        "text.mlir": program.mlir_module().encode(),
        "portable.mlirbc": program.mlir_module_serialized,
        "exported": bytes(program.serialize()),
    }.items():
        (tmp_path / name).write_bytes(data)
        assert file_format_of(tmp_path / name) is FileFormat.STABLEHLO
    assert len({converted(program.mlir_module_serialized).SerializeToString() for _ in range(3)}) == 1
    first = import_stablehlo(tmp_path / "exported", tmp_path / "first.onnx", limits=LIMITS)
    assert [(spec.name, spec.shape, spec.dtype) for spec in first.inputs] == [("x", (3, 4), "float32")]
    assert [(spec.name, spec.dtype) for spec in first.outputs] == [
        ("above", "bool"),
        ("place", "int32"),
        ("small", "float32"),
    ]
    assert first.path == tmp_path / "first.onnx"
    convert_stablehlo(program, tmp_path / "again.onnx", limits=LIMITS)
    assert (tmp_path / "again.onnx").read_bytes() == first.path.read_bytes()
    assert converted(program.mlir_module()).SerializeToString() == first.path.read_bytes()


@pytest.mark.exhaustive
def test_the_command_converts_a_program(program: Any, tmp_path: Path) -> None:
    (tmp_path / "exported").write_bytes(program.serialize())
    result = CliRunner().invoke(
        make_app(), ["models", "convert", str(tmp_path / "exported"), str(tmp_path / "net.onnx"), "--json"]
    )
    assert result.exit_code == 0, result.output
    described = json.loads(result.stdout)
    assert [spec["name"] for spec in described["inputs"]] == ["x"]
    assert described["compared"] == "as XLA computes them"
    onnx.checker.check_model(onnx.load(tmp_path / "net.onnx"))


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("net.mlir", b"module {\n  what is this\n}", "invalid-stablehlo"),
        ("net", b"ML\xefR" + bytes(range(200)), "invalid-stablehlo"),
        ("net", b"ML\xefR\x0dStableHLO_v1.0.0\x00" + bytes(range(200)), "invalid-stablehlo"),
        ("net.mlir", b"something else", "not-stablehlo"),
        ("net.mlir", b"", "not-stablehlo"),
        ("net.mlir", b"module {}", "invalid-stablehlo"),
    ],
)
def test_what_is_no_program_is_refused(name: str, data: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidModelError) as caught:
        import_stablehlo(tmp_path / name, tmp_path / "net.onnx", limits=LIMITS)
    assert caught.value.code == code
    assert not (tmp_path / "net.onnx").exists()


def test_a_file_that_is_cut_off_is_refused(program: Any, tmp_path: Path) -> None:
    data = program.mlir_module_serialized
    (tmp_path / "net.mlirbc").write_bytes(data[: len(data) // 2])
    (tmp_path / "net.onnx").write_bytes(b"from before")
    with pytest.raises(InvalidModelError) as caught:
        import_stablehlo(tmp_path / "net.mlirbc", tmp_path / "net.onnx", limits=LIMITS)
    assert caught.value.code == "invalid-stablehlo"
    assert (tmp_path / "net.onnx").read_bytes() == b"from before"


def test_bad_locations_are_named(program: Any, tmp_path: Path) -> None:
    file = tmp_path / "net.mlirbc"
    with pytest.raises(InvalidInputError) as missing:
        import_stablehlo(file, tmp_path / "net.onnx")
    assert missing.value.code == "no-such-file"
    with pytest.raises(InvalidInputError) as missing:
        file_format_of(file)
    assert missing.value.code == "no-such-file"
    file.write_bytes(program.mlir_module_serialized)
    with pytest.raises(InvalidInputError) as same:
        import_stablehlo(file, file)
    assert same.value.code == "same-file"
    with pytest.raises(InvalidInputError) as nowhere:
        import_stablehlo(file, tmp_path / "none" / "net.onnx")
    assert nowhere.value.code == "cannot-write"
    with pytest.raises(InvalidInputError) as other:
        import_stablehlo(3, tmp_path / "net.onnx")
    assert other.value.code == "not-stablehlo"


def test_without_jaxlib_the_extra_is_named(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "find_spec", lambda name: None)
    with pytest.raises(InvalidInputError, match=r"pip install 'tunefarm\[stablehlo\]'") as caught:
        import_stablehlo(program, tmp_path / "net.onnx")
    assert caught.value.code == "not-installed"


def test_all_that_is_not_read_is_told_at_once() -> None:
    def function(x: Any, y: Any) -> Any:
        return (
            jnp.fft.rfft(x).real,
            jax.random.normal(jax.random.key(0), (2,)),
            jax.lax.while_loop(lambda c: c.sum() < 10, lambda c: c * 2, y),
            jnp.linalg.cholesky(x @ x.T),
            jax.lax.cond(y[0] > 0, lambda: x, lambda: -x),
        )

    module = exported(function, np.zeros((3, 4), np.float32), np.zeros(4, np.float32)).mlir_module_serialized
    with pytest.raises(InvalidModelError) as caught:
        converted(module)
    assert caught.value.code == "unsupported-operator"
    for part in (
        "stablehlo.fft",
        "elements of type complex<f32>",
        "its number of rounds is computed",
        "the branch is computed",
        "lapack",
    ):
        assert part in caught.value.message, caught.value.message


def test_sizes_that_are_open_are_refused() -> None:
    from jax import export

    (a,) = export.symbolic_shape("a")
    module = export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((a, 4), np.float32))
    with pytest.raises(InvalidModelError, match="a dynamic dimension") as caught:
        converted(module.mlir_module_serialized)
    assert caught.value.code == "unknown-dimension"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("%0 = stablehlo.custom_call @other(%x) : (tensor<2xf32>) -> tensor<2xf32>", "'other'"),
        ("%0 = func.call @main(%x) : (tensor<2xf32>) -> tensor<2xf32>", "deep"),
        (
            "%0 = stablehlo.compare LT, %x, %x, TOTALORDER : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>",
            "total order",
        ),
        ("%0 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf8E4M3FN>", "f8E4M3FN"),
        (_DIFFERENCES, "inner program"),
    ],
)
def test_forms_that_are_not_read_are_refused(text: str, why: str) -> None:
    module = f"module {{ func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{\n{text}\nreturn %x : tensor<2xf32> }} }}"
    with pytest.raises(InvalidModelError, match=why):
        converted(module)


def test_forms_that_jax_does_not_write_are_read() -> None:
    """Constants apart from the text, bfloat16, CHLO's functions, a batch norm, annotations, older names."""
    text = """
module {
  func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
    %blob = stablehlo.constant dense_resource<numbers> : tensor<3xf32>
    %half = stablehlo.constant dense<[1.0, 0x7F80, -2.5]> : tensor<3xbf16>
    %one = stablehlo.constant dense<1.0> : tensor<3xf32>
    %0 = stablehlo.broadcast %blob, sizes = [2] : (tensor<3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.add %x, %0 : tensor<2x3xf32>
    %2 = chlo.erf %x : tensor<2x3xf32> -> tensor<2x3xf32>
    %3 = stablehlo.custom_call @mhlo.erf(%2) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %4 = stablehlo.custom_call @Sharding(%3) {mhlo.sharding = "{replicated}"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %5 = "stablehlo.batch_norm_inference"(%x, %one, %blob, %blob, %one) {epsilon = 0.001 : f32, feature_index = 1 : i64}
        : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
    %6 = stablehlo.convert %half : (tensor<3xbf16>) -> tensor<3xf32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %8 = stablehlo.minimum %x, %7 : tensor<2x3xf32>
    return %1, %4, %5, %8 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
  }
}
{-# dialect_resources: { builtin: { numbers: "0x040000000000803F0000004000004040" } } #-}
"""
    from stablehlo_run import computed

    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    added, erf, normed, least = computed(converted(text), [x])
    numbers = np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(added, x + numbers)
    np.testing.assert_allclose(erf, jax.lax.erf(jax.lax.erf(x)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(normed, (x - numbers) / np.sqrt(1.001) + numbers, rtol=1e-5)
    np.testing.assert_allclose(least, np.minimum(x, np.array([1, np.inf, -2.5], np.float32)))


def test_a_conversion_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA is asked about another program than the one that was converted."""
    two, three = (exported(lambda x, n=n: x * n, np.zeros((3, 4), np.float32)) for n in (2.0, 3.0))
    (tmp_path / "other.mlirbc").write_bytes(three.mlir_module_serialized)
    run = home.run_in_source
    monkeypatch.setattr(home, "run_in_source", lambda _, *more: run(tmp_path / "other.mlirbc", *more))
    with pytest.raises(InvalidModelError, match="computes different results than XLA") as caught:
        import_stablehlo(two, tmp_path / "net.onnx", limits=LIMITS)
    assert caught.value.code == "conversion-differs"
    assert not (tmp_path / "net.onnx").exists()


@pytest.mark.exhaustive
def test_what_has_no_result_for_negative_numbers_is_compared_on_positive_ones(tmp_path: Path) -> None:
    program = exported(
        lambda x: jnp.argmax(jnp.sqrt(x), 1) + jnp.max(jnp.log(x)), np.zeros((3, 4), np.float32)
    )
    assert convert_stablehlo(program, tmp_path / "net.onnx", limits=LIMITS).warning == ""


_HIDDEN = """
module {
  func.func private @d(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {api_version = 4 : i32, backend_config = {index = 1 : ui64}}
        : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
  func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.composite "chlo.erf" %x {decomposition = @d} : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""


def test_xla_runs_nothing_that_calls_a_function_of_the_process_s(tmp_path: Path) -> None:
    (tmp_path / "net.mlir").write_text(_HIDDEN)
    conversion = convert_stablehlo(tmp_path / "net.mlir", tmp_path / "net.onnx", limits=LIMITS)
    assert "which XLA would call: xla_ffi_python_cpu_callback" in conversion.warning


@pytest.mark.exhaustive
def test_what_xla_cannot_run_is_told(tmp_path: Path) -> None:
    """CHLO's functions have no place in XLA."""
    text = "module { func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n%0 = stablehlo.custom_call @mhlo.erf(%x) : "
    text += "(tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32> } }"
    (tmp_path / "net.mlir").write_text(text)
    with pytest.warns(UserWarning, match="not compared with XLA: XLA cannot"):
        import_stablehlo(tmp_path / "net.mlir", tmp_path / "net.onnx", limits=LIMITS)
