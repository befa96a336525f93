"""Walks over TIR."""

from __future__ import annotations

import tvm
from tvm import te, tirx

from tunefarm_tuning.tvm.base.tir import nodes_of, walk


def lowered() -> tirx.PrimFunc:
    given = te.placeholder((8,), "float32", name="given")
    wrapped = te.compute((64,), lambda i: te.exp(given[i % 8]) + given[i // 8], name="wrapped")
    return te.create_prim_func([given, wrapped])


def test_a_walk_yields_every_node_once_and_parents_first() -> None:
    func = lowered()
    nodes = list(walk(func))
    assert len({node.__chandle__() for node in nodes}) == len(nodes)
    assert nodes[0].same_as(func)
    positions = {node.__chandle__(): number for number, node in enumerate(nodes)}
    for node in nodes:
        if isinstance(node, tirx.Add):
            assert positions[node.a.__chandle__()] > positions[node.__chandle__()]


def test_fields_left_out_are_not_entered() -> None:
    func = lowered()
    kinds = {type(node) for node in walk(func, leaving_out=("body",))}
    assert tirx.BufferStore not in kinds
    assert tirx.BufferStore in {type(node) for node in walk(func)}


def test_nodes_of_finds_what_a_walk_does() -> None:
    body = lowered().body
    for kind in (tirx.FloorMod, tirx.For, tvm.ir.TensorLoad, tirx.BufferStore):
        walked = {node.__chandle__() for node in walk(body) if isinstance(node, kind)}
        assert walked
        assert {node.__chandle__() for node in nodes_of(body, kind)} == walked
    either = {type(node) for node in nodes_of(body, (tirx.FloorMod, tirx.For))}
    assert either == {tirx.FloorMod, tirx.For}
