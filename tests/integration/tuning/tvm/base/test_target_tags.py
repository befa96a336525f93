"""The shipped table of target tags equals that of the pinned TVM."""

from __future__ import annotations

import json

import pytest

from tunefarm_tuning.core.errors import UnknownTargetError
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.dump_target_tags import TABLE_PATH, table_text
from tunefarm_tuning.tvm.base.target import tvm_target


def test_targets() -> None:
    assert table_text() == TABLE_PATH.read_text(encoding="utf-8"), (
        "run python -m tunefarm_tuning.tvm.base.dump_target_tags"
    )


def test_every_tag_of_our_kinds_makes_a_target_of_tvm() -> None:
    tags = json.loads(TABLE_PATH.read_text(encoding="utf-8"))["tags"]
    ours = [name for name, config in tags.items() if config["kind"] in ("llvm", "cuda")]
    # TVM 0.27 has a tag for a CPU that its own LLVM does not know: its kernels would be for a generic one.
    unknown = [name for name in ours if tags[name].get("mcpu") == "spacemit-x100"]
    for name in ours:
        if name in unknown:
            with pytest.raises(UnknownTargetError):
                parse_target(name)
        else:
            target = parse_target(name)
            assert tvm_target(target).kind.name == target.kind
    assert len(unknown) == 1
    assert len(ours) > 250


def test_the_host_is_a_target_of_tvm() -> None:
    target = parse_target("host")
    assert target.kind == "llvm"
    assert target.get("mcpu")
    assert int(str(target.get("num-cores"))) >= 1
    assert tvm_target(target).kind.name == "llvm"
