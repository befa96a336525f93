"""Change what a symbol of an object file holds, without a compiler: 64-bit ELF, little-endian, as LLVM writes it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from tunefarm_tuning.core.errors import InvariantError

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
