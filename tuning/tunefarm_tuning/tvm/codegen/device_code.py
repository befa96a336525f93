"""Machine code for GPUs in the place of CUDA C: what runs a kernel then needs no compiler.

TVM 0.27 leaves the C source of a GPU's kernels in the library, to be compiled on the device when it is loaded (on a machine
with a GPU only because `tvm_target` says so). Here it is compiled with ``nvcc`` while the library is made, and the library's list of modules carries the machine code (a cubin).
The list is a table of bytes in the library; its form is that of TVM's ``ModulePackImports`` and is checked while read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.cuda_compile import compile_cuda
from tunefarm_tuning.tvm.codegen.linker import link

SYMBOL = "__tvm_ffi__library_bin"
_SOURCE, _MACHINE_CODE = "cuda", "cubin"
_HOST = "_lib"


@dataclass(frozen=True, slots=True)
class PackedModule:
    """One entry of a library's list. `data` is None for the library's own code."""

    kind: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class PackedModules:
    """The list as TVM packs it: which module imports which, then the modules."""

    tree: bytes
    modules: tuple[PackedModule, ...]

    @classmethod
    def read(cls, blob: bytes) -> PackedModules:
        """Read a list.

        Raises:
            InvariantError: If it is none: another version of TVM wrote it.
        """
        try:
            reader = _Reader(blob)
            if reader.number() != len(blob) - 8:
                raise ValueError("its length is wrong")
            begin = reader.place
            rows, children = reader.numbers(), reader.numbers()
            tree = blob[begin : reader.place]
            modules = []
            for _ in range(len(rows) - 1):
                kind = reader.chunk().decode("ascii")
                modules.append(PackedModule(kind, None if kind == _HOST else reader.chunk()))
            if reader.place != len(blob) or rows[-1] != len(children):
                raise ValueError("something is left over")
        except (ValueError, struct.error) as error:
            raise InvariantError(f"TVM's list of a library's modules cannot be read: {error}") from error
        return cls(tree, tuple(modules))

    def to_bytes(self) -> bytes:
        parts = [self.tree]
        for one in self.modules:
            parts.append(_chunk(one.kind.encode("ascii")))
            if one.data is not None:
                parts.append(_chunk(one.data))
        body = b"".join(parts)
        return struct.pack("<Q", len(body)) + body

    def compiled(self, sources: Sequence[bytes], compile_: Callable[[bytes], bytes]) -> PackedModules:
        """Return the list with machine code where it had a source of CUDA C.

        Args:
            sources: Of the list's CUDA modules, in any order.
            compile_: Makes machine code of one.

        Raises:
            InvariantError: If a CUDA module holds none of the sources, or something else than source.
        """
        return replace(self, modules=tuple(_compiled(one, sources, compile_) for one in self.modules))


def _compiled(
    one: PackedModule, sources: Sequence[bytes], compile_: Callable[[bytes], bytes]
) -> PackedModule:
    if one.kind != "cuda":
        return one
    head = _chunk(_SOURCE.encode())
    if one.data is None or not one.data.startswith(head):
        raise InvariantError("a CUDA module of TVM's is not in source form: TVM compiled it itself")
    for source in sources:
        # Between the form's name and the source is the table of functions, which stays as it is.
        before, found, after = one.data[len(head) :].partition(_chunk(source))
        if found:
            made = _chunk(_MACHINE_CODE.encode()) + before + _chunk(compile_(source)) + after
            return PackedModule(one.kind, made)
    raise InvariantError("a CUDA module of TVM's does not hold its source")


def export(library: Any, output: Path, work_dir: Path, target: Target, *, fast: bool = True) -> None:
    """Write a built module (or a Relax executable) for a GPU as a shared library with machine code.

    Args:
        library: What TVM's ``build`` or ``compile`` returned.
        output: A path that was never loaded from.
        work_dir: For objects and what ``nvcc`` makes on the way.
        target: Its architecture is compiled for, its host linked for.
        fast: As of `link`.

    Raises:
        TunefarmError: Of `compile_cuda` and `link`.
    """

    def pack(module: Any, is_system_lib: bool, prefix: str, folder: str) -> str:
        return _pack(module, is_system_lib, prefix, Path(folder), target)

    def link_(path: str, objects: list[str], **_: Any) -> None:
        link(objects, path, target, fast=fast)

    module = library if isinstance(library, tvm.runtime.Module) else library.mod
    module.export_library(str(output), fcompile=link_, fpack_imports=pack, workspace_dir=str(work_dir))


def _pack(module: Any, is_system_lib: bool, prefix: str, folder: Path, target: Target) -> str:
    sources = [source.encode("utf-8") for source in _cuda_sources(module)]

    def compiled(blob: bytes) -> bytes:
        found = PackedModules.read(blob)
        return found.compiled(sources, lambda source: compile_cuda(source, target, folder)).to_bytes()

    output = folder / f"{prefix}devc.o"
    host = str(tvm_target(target).host)
    packed = tvm_ffi.get_global_func("runtime.ModulePackImportsToLLVM")(module, is_system_lib, host, prefix)
    packed.write_to_file(str(output), "o")
    output.write_bytes(with_symbol(output.read_bytes(), f"{prefix}{SYMBOL}", compiled))
    return str(output)


def _cuda_sources(module: Any) -> list[str]:
    found: list[str] = []
    waiting: list[Any] = [module]
    seen: list[Any] = []
    while waiting:
        one = waiting.pop()
        if any(one.same_as(other) for other in seen):
            continue
        seen.append(one)
        waiting += list(one.imports)
        if one.kind == "cuda":
            found.append(str(one.inspect_source("cuda")))
    return found


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def number(self) -> int:
        (found,) = struct.unpack_from("<Q", self._data, self.place)
        self.place += 8
        return int(found)

    def numbers(self) -> list[int]:
        count = self.number()
        if count > len(self._data) // 8:
            raise ValueError("it is cut off")
        return [self.number() for _ in range(count)]

    def chunk(self) -> bytes:
        size = self.number()
        if size > len(self._data) - self.place:
            raise ValueError("it is cut off")
        self.place += size
        return self._data[self.place - size : self.place]


def _chunk(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class _Section:
    place: int  # of its header in the file
    fields: tuple[int, ...]

    @property
    def offset(self) -> int:
        return self.fields[4]

    @property
    def size(self) -> int:
        return self.fields[5]


def with_symbol(data: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return an object file whose symbol holds what `change` makes of its content.

    The section gets a new place at the end of the file; nothing may refer into it behind the symbol.

    Raises:
        InvariantError: If the file is not of that kind, or the symbol is not the last of its section.
    """
    try:
        sections = _sections(data)
        place, (string, info, other, index, start, size) = _symbol(data, sections, name.encode())
        section = sections[index]
        if start + size != section.size:
            raise ValueError(f"{name} is not the last in its section")
        begin = section.offset + start
        content = data[section.offset : begin] + change(data[begin : begin + size])
    except (ValueError, IndexError, struct.error) as error:
        raise InvariantError(f"an object file of TVM's cannot be read: {error}") from error
    edited = bytearray(data)
    edited += bytes(-len(edited) % _ALIGNMENT)
    fields = list(section.fields)
    fields[4:6] = len(edited), len(content)
    _SECTION.pack_into(edited, section.place, *fields)
    _SYMBOL.pack_into(edited, place, string, info, other, index, start, len(content) - start)
    return bytes(edited + content)


def _sections(data: bytes) -> list[_Section]:
    header = _HEADER.unpack_from(data)
    if header[0][:6] != b"\x7fELF\x02\x01":
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
        for place in range(table.offset, table.offset + table.size, _SYMBOL.size):
            fields = _SYMBOL.unpack_from(data, place)
            begin = names.offset + fields[0]
            if data[begin : data.index(b"\0", begin)] == name:
                return place, fields
    raise ValueError(f"it has no symbol {name.decode()}")
