"""Malformed hello messages for an RPC server."""

from __future__ import annotations

from tunefarm_workers.device.rpc.wire import INT, RPC_MAGIC, pack_hello

HELLOS = {
    "wrong magic": b"GET / HTTP/1.1\r\n\r\n",
    "empty key": INT.pack(RPC_MAGIC) + INT.pack(0),
    "negative length": INT.pack(RPC_MAGIC) + INT.pack(-5),
    "huge length": INT.pack(RPC_MAGIC) + INT.pack(2**31 - 1),
    "not UTF-8": INT.pack(RPC_MAGIC) + INT.pack(4) + b"\xff\xfe\xfd\xfc",
    "only spaces": INT.pack(RPC_MAGIC) + INT.pack(3) + b"   ",
    "a bad time limit": pack_hello("client:x -timeout=soon"),
    "an endless time limit": pack_hello("client:x -timeout=nan"),
    "truncated": INT.pack(RPC_MAGIC) + INT.pack(20) + b"client:",
    "two bytes": b"\x71\xf2",
}
