"""Object code of kernels: compiled once, for networks and for checks of kernels, in this process and in others."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from tunefarm_tuning.core.spans import SpanKind, recording
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen import kernel_objects
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel, build_model
from tunefarm_tuning.tvm.codegen.kernel_objects import KernelObjects
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel

HOST = parse_target("host")
SIZE = 8


@pytest.fixture
def objects(tmp_path: Path) -> KernelObjects:
    (tmp_path / "objects").mkdir()
    return KernelObjects(tmp_path / "objects")


def kernel(factor: float) -> tirx.PrimFunc:
    given = te.placeholder((SIZE,), "float32", name="given")
    scaled = te.compute((SIZE,), lambda i: given[i] * tirx.const(factor, "float32"), name="scaled")
    return te.create_prim_func([given, scaled])


def network(*factors: float) -> tvm.IRModule:
    """Return a network that calls a kernel for each factor, one after the other."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((SIZE,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = x
            for number, factor in enumerate(factors):
                variable = builder.add_func(kernel(factor), f"scale{number}")
                value = builder.emit(relax.call_tir(variable, [value], relax.TensorType((SIZE,), "float32")))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return builder.get()


def compiled(spans: Any) -> int:
    """Return how often LLVM was used."""
    return sum(noted.kind is SpanKind.LLVM for noted in spans)


def run(path: Path) -> list[float]:
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    output = machine["main"](tvm.runtime.tensor(np.ones(SIZE, np.float32)))
    return [float(value) for value in output.numpy()]


def test_a_network_links_what_another_one_compiled(objects: KernelObjects, tmp_path: Path) -> None:
    build_model(network(2.0, 3.0), HOST, tmp_path / "first.so", objects=objects)
    with recording() as log:
        build_model(network(3.0, 2.0, 2.0), HOST, tmp_path / "second.so", objects=objects)
    assert compiled(log.spans) == 0
    assert run(tmp_path / "first.so") == [6.0] * SIZE
    assert run(tmp_path / "second.so") == [12.0] * SIZE
    assert len(list(objects.folder.iterdir())) == 2


def test_the_check_of_a_kernel_links_the_networks_object(objects: KernelObjects, tmp_path: Path) -> None:
    build_model(network(2.0), HOST, tmp_path / "network.so", objects=objects)
    with recording() as log:
        build_kernel(PackedKernel(func=kernel(2.0)), HOST, tmp_path / "kernel.so", objects=objects)
    assert compiled(log.spans) == 0
    result = tvm.runtime.empty((SIZE,), "float32")
    library = tvm.runtime.load_module(str(tmp_path / "kernel.so"))
    library["main"](tvm.runtime.tensor(np.ones(SIZE, np.float32)), result)
    assert list(result.numpy()) == [2.0] * SIZE


def test_another_kernel_or_target_has_an_object_of_its_own(objects: KernelObjects) -> None:
    paths = {
        objects.object_of(kernel(2.0), HOST),
        objects.object_of(kernel(3.0), HOST),
        objects.object_of(kernel(2.0), parse_target("llvm -mcpu=x86-64-v2")),
    }
    assert len(paths) == 3


def test_the_order_of_attributes_makes_no_other_object(objects: KernelObjects) -> None:
    """A network's kernels and those that are checked alone get their attributes in different orders."""
    plain = kernel(2.0)
    for name in list(plain.attrs.keys()):
        plain = plain.without_attr(name)
    attributes = {"tirx.noalias": True, "s_tir": True}
    paths = {
        objects.object_of(plain.with_attr(dict(order)), HOST)
        for order in (list(attributes.items()), list(reversed(attributes.items())))
    }
    assert len(paths) == 1


def test_kernels_of_a_copy_that_dies_are_compiled_by_the_others(
    objects: KernelObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = KernelObjects.object_of
    deadly = kernel(1.0)

    def die(self: KernelObjects, func: Any, *arguments: Any, **options: Any) -> Path:
        if tvm_ffi.structural_equal(func.body, deadly.body, map_free_vars=True):
            os._exit(1)
        return compiled(self, func, *arguments, **options)

    monkeypatch.setattr(KernelObjects, "object_of", die)
    monkeypatch.setattr(kernel_objects.os, "sched_getaffinity", lambda _: {0, 1})
    objects.compile_all([deadly, *(kernel(float(factor)) for factor in range(2, 8))], HOST)
    assert len(list(objects.folder.iterdir())) == 6


@pytest.mark.parametrize("damage", [b"", b"no object"])
def test_a_damaged_object_is_compiled_anew(objects: KernelObjects, tmp_path: Path, damage: bytes) -> None:
    path = objects.object_of(kernel(2.0), HOST)
    whole = path.read_bytes()
    path.write_bytes(damage)
    build_model(network(2.0), HOST, tmp_path / "network.so", objects=objects)
    assert run(tmp_path / "network.so") == [2.0] * SIZE
    assert path.read_bytes() == whole


def test_what_fails_in_a_copy_of_the_process_fails_where_it_is_asked_for(objects: KernelObjects) -> None:
    broken = kernel(1.0).with_attr("target", 1)
    objects.compile_all([kernel(2.0), broken, kernel(3.0)], HOST)
    assert len(list(objects.folder.iterdir())) == 2
    with pytest.raises(Exception, match="arget"):
        objects.object_of(broken, HOST)


def test_a_copy_that_hangs_is_ended(
    objects: KernelObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy has the locks that threads of the original held, and not the threads."""
    original = os.getpid()
    compiled = KernelObjects.object_of

    def hang(self: KernelObjects, *arguments: Any, **options: Any) -> Path:
        if os.getpid() != original:
            (tmp_path / f"copy-{os.getpid()}").touch()
            time.sleep(3600.0)
        return compiled(self, *arguments, **options)

    monkeypatch.setattr(KernelObjects, "object_of", hang)
    monkeypatch.setattr(kernel_objects, "_COPIES_SEC", 5.0)
    objects.compile_all([kernel(2.0), kernel(3.0)], HOST)
    (first, *_) = (int(path.name.removeprefix("copy-")) for path in tmp_path.glob("copy-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert objects.object_of(kernel(2.0), HOST).exists()
