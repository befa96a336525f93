"""Write libraries: their list of modules, with machine code for GPUs in place of CUDA C, so that running a kernel needs no compiler.

TVM 0.27 leaves the CUDA C of a GPU's kernels in the library, to be compiled on the device when it is loaded. (On a machine with a
GPU this is so only because `tvm_target` asks for it.) `export` compiles it with ``nvcc`` while the library is made, and puts the
machine code (a cubin) into the library's list of modules.

That list is a table of bytes behind a symbol of an object file; a network's weights are in it. Its format is that of TVM's
``ModulePackImports``; reading it checks the format. LLVM takes a second for an object file of 100 MB, so it writes that of a short list,
and `write_with_symbol` puts the bytes into it: 64-bit ELF, little-endian. For machines of 32 bits LLVM writes all of it.
"""

from __future__ import annotations

import functools
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.target.gpu_launch import KernelResources
from tunefarm_tuning.target.linker import link
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.cuda_compile import compile_cuda

SYMBOL = "__tvm_ffi__library_bin"
_SOURCE, _MACHINE_CODE = "cuda", "cubin"
_HOST = "_lib"


@dataclass(frozen=True, slots=True)
class PackedModule:
    """One entry of a library's list of modules. `data` is None for the library's own code."""

    kind: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class PackedModules:
    """A library's list of modules as TVM packs it: the imports between modules, then the modules."""

    tree: bytes
    modules: tuple[PackedModule, ...]

    @classmethod
    def read(cls, blob: bytes) -> PackedModules:
        """Read a list.

        Raises:
            InvariantError: If the bytes are no such list, as another version of TVM wrote them.
        """
        try:
            reader = _Reader(blob)
            if reader.number() != len(blob) - 8:
                raise ValueError("its length is wrong")
            begin = reader.position
            rows, children = reader.numbers(), reader.numbers()
            tree = blob[begin : reader.position]
            modules = []
            for _ in range(len(rows) - 1):
                kind = reader.chunk().decode("ascii")
                modules.append(PackedModule(kind, None if kind == _HOST else reader.chunk()))
            if reader.position != len(blob) or rows[-1] != len(children):
                raise ValueError("something is left over")
        except (ValueError, struct.error) as error:
            raise InvariantError(f"TVM's list of a library's modules cannot be read: {error}") from error
        return cls(tree, tuple(modules))

    def to_bytes(self) -> bytes:
        """Return the list as TVM packs it."""
        parts = [self.tree]
        for module in self.modules:
            parts.append(_chunk(module.kind.encode("ascii")))
            if module.data is not None:
                parts.append(_chunk(module.data))
        body = b"".join(parts)
        return struct.pack("<Q", len(body)) + body

    def compiled(self, sources: Sequence[bytes], compile_: Callable[[bytes], bytes]) -> PackedModules:
        """Return the list with machine code in place of CUDA C, each of `sources` compiled by `compile_`.

        Raises:
            InvariantError: If a CUDA module holds none of the sources, or no source at all.
        """
        return replace(self, modules=tuple(_compiled(module, sources, compile_) for module in self.modules))


def _compiled(
    module: PackedModule, sources: Sequence[bytes], compile_: Callable[[bytes], bytes]
) -> PackedModule:
    if module.kind != "cuda":
        return module
    head = _chunk(_SOURCE.encode())
    if module.data is None or not module.data.startswith(head):
        raise InvariantError("a CUDA module of TVM's is not in source form: TVM compiled it itself")
    for source in sources:
        # The table of functions, between the format's name and the source, stays unchanged.
        before, match, after = module.data[len(head) :].partition(_chunk(source))
        if match:
            data = _chunk(_MACHINE_CODE.encode()) + before + _chunk(compile_(source)) + after
            return PackedModule(module.kind, data)
    raise InvariantError("a CUDA module of TVM's does not hold its source")


def export(
    library: Any, output: Path, work_dir: Path, target: Target, *, objects: Sequence[Path] = ()
) -> tuple[KernelResources, ...]:
    """Write a built module (or a Relax executable) as a shared library, for a GPU with machine code.

    Args:
        library: The result of TVM's ``build`` or ``compile``.
        output: A path from which no library was loaded before.
        work_dir: Folder for object files and ``nvcc``'s files.
        target: The CPU or the GPU; for a GPU, the library is linked for its host.
        objects: Further files for the linker.

    Returns:
        What the machine code of each kernel for a GPU uses.

    Raises:
        TunefarmError: As of `compile_cuda` and `link`.
    """
    kernels: list[KernelResources] = []

    def pack(module: Any, _is_system_lib: bool, prefix: str, folder: str) -> str:
        return _pack(module, prefix, Path(folder), target, kernels)

    def link_(path: str, objects: list[str], **_: Any) -> None:
        link(objects, path, target)

    link_.object_format = "o"  # type: ignore[attr-defined]  # else TVM asks a C compiler for the target triple
    module = library if isinstance(library, tvm.runtime.Module) else library.mod
    module.export_library(
        str(output),
        fcompile=link_,
        fpack_imports=pack,
        addons=[str(file) for file in objects],
        workspace_dir=str(work_dir),
    )
    return tuple(kernels)


def _pack(module: Any, prefix: str, folder: Path, target: Target, kernels: list[KernelResources]) -> str:
    """Write the modules that a library imports as an object file, GPU code compiled; add its kernels' resources to `kernels`."""
    packed = memoryview(tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy())
    if target.kind == "cuda":
        sources = [source.encode("utf-8") for source in cuda_sources(module)]

        def machine_code(source: bytes) -> bytes:
            code = compile_cuda(source, target, folder)
            kernels.extend(code.kernels)
            return code.data

        packed = memoryview(PackedModules.read(bytes(packed)).compiled(sources, machine_code).to_bytes())
    output = folder / f"{prefix}devc.o"
    short_list = _short_list(target, prefix)
    if short_list.startswith(_ELF64):
        write_with_symbol(output, short_list, f"{prefix}{SYMBOL}", packed)
    else:
        _object_of_list(module, _host(target), prefix, output)
    return str(output)


@functools.lru_cache(maxsize=8)
def _short_list(target: Target, prefix: str) -> bytes:
    """Return an object file, for the target's host, of the list of modules of a library that does nothing."""
    host = _host(target)
    link_machine = tvm_ffi.get_global_func("relax.VMLink")
    library = link_machine(relax.ExecBuilder(), host, unused_library(target), [], {})
    with tempfile.TemporaryDirectory(prefix="short-list-") as folder:
        path = Path(folder, "list.o")
        _object_of_list(library, host, prefix, path)
        return path.read_bytes()


def _object_of_list(module: Any, host: tvm.target.Target, prefix: str, output: Path) -> None:
    """Have LLVM write the object file of a library's list of modules."""
    packed = tvm_ffi.get_global_func("runtime.ModulePackImportsToLLVM")(module, False, str(host), prefix)
    packed.write_to_file(str(output), "o")


def _host(target: Target) -> tvm.target.Target:
    machine = tvm_target(target)
    return machine.host or machine


@functools.lru_cache(maxsize=8)
def unused_library(target: Target) -> Any:
    """Return a module with an unused kernel for the target's host: TVM packs what a library imports beside such a module only."""
    name = "tunefarm_nothing"
    func = unused_kernel().with_attr("global_symbol", name)
    return tvm.tirx.build(tvm.IRModule({name: func}), _host(target))


def unused_kernel() -> tvm.tirx.PrimFunc:
    """Return a kernel that copies a number."""
    tensor = te.placeholder((1,), name="nothing")
    return te.create_prim_func([tensor, te.compute((1,), lambda i: tensor[i])])


def cuda_sources(module: Any) -> list[str]:
    """Return the CUDA C of a module and of all that it imports."""
    sources: list[str] = []
    waiting: list[Any] = [module]
    visited: list[Any] = []
    while waiting:
        current = waiting.pop()
        if any(current.same_as(other) for other in visited):
            continue
        visited.append(current)
        waiting += list(current.imports)
        if current.kind == "cuda":
            sources.append(str(current.inspect_source("cuda")))
    return sources


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def number(self) -> int:
        (number,) = struct.unpack_from("<Q", self._data, self.position)
        self.position += 8
        return int(number)

    def numbers(self) -> list[int]:
        count = self.number()
        if count > len(self._data) // 8:
            raise ValueError("it is cut off")
        return [self.number() for _ in range(count)]

    def chunk(self) -> bytes:
        size = self.number()
        if size > len(self._data) - self.position:
            raise ValueError("it is cut off")
        self.position += size
        return self._data[self.position - size : self.position]


def _chunk(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_ELF64 = b"\x7fELF\x02\x01"
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class _Section:
    header_offset: int
    fields: tuple[int, ...]

    @property
    def offset(self) -> int:
        return self.fields[4]

    @property
    def size(self) -> int:
        return self.fields[5]


def write_with_symbol(path: Path, data: bytes, name: str, content: memoryview) -> None:
    """Write an object file with another content of its symbol.

    The symbol's section moves to the end of the file; nothing may refer to bytes of it behind the symbol.

    Args:
        path: The file to write.
        data: The object file.
        name: The symbol.
        content: Its new content.

    Raises:
        InvariantError: If the file has another format, or the symbol is not the last one of its section.
    """
    try:
        sections = _sections(data)
        offset, (string, info, other, index, start, size) = _symbol(data, sections, name.encode())
        section = sections[index]
        if start + size != section.size:
            raise ValueError(f"{name} is not the last in its section")
    except (ValueError, IndexError, struct.error) as error:
        raise InvariantError(f"an object file of TVM's cannot be read: {error}") from error
    edited = bytearray(data)
    edited += bytes(-len(edited) % _ALIGNMENT)
    fields = list(section.fields)
    fields[4:6] = len(edited), start + len(content)
    _SECTION.pack_into(edited, section.header_offset, *fields)
    _SYMBOL.pack_into(edited, offset, string, info, other, index, start, len(content))
    with path.open("wb") as file:
        file.write(edited)
        file.write(data[section.offset : section.offset + start])
        file.write(content)


def _sections(data: bytes) -> list[_Section]:
    header = _HEADER.unpack_from(data)
    if not header[0].startswith(_ELF64):
        raise ValueError("it is no 64-bit ELF file")
    begin, size, count = header[6], header[11], header[12]
    return [
        _Section(begin + number * size, _SECTION.unpack_from(data, begin + number * size))
        for number in range(count)
    ]


def _symbol(data: bytes, sections: list[_Section], name: bytes) -> tuple[int, tuple[int, ...]]:
    for table in sections:
        if table.fields[1] != _SYMTAB:
            continue
        names = sections[table.fields[6]]
        for offset in range(table.offset, table.offset + table.size, _SYMBOL.size):
            fields = _SYMBOL.unpack_from(data, offset)
            begin = names.offset + fields[0]
            if data[begin : data.index(b"\0", begin)] == name:
                return offset, fields
    raise ValueError(f"it has no symbol {name.decode()}")
