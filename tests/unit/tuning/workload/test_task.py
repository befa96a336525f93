"""Tasks and targets: JSON round trips and keys."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.task import TensorSpec, TuningTask, Workload

names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12).filter(lambda n: n != "kind")
words = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789_+.", min_size=1, max_size=12)
values = words | st.integers(0, 2**31) | st.booleans() | st.lists(words, max_size=3).map(tuple)
targets = st.builds(
    lambda kind, attributes: Target(kind=kind, attributes=tuple(sorted(attributes.items()))),
    st.sampled_from(["llvm", "cuda"]),
    st.dictionaries(names, values, max_size=4),
)
specs = st.builds(
    TensorSpec,
    name=st.text(max_size=10),
    shape=st.lists(st.integers(1, 4096), max_size=5).map(tuple),
    dtype=st.sampled_from(["float32", "int64", "bool"]),
)
tasks = st.builds(
    TuningTask,
    workload=st.builds(
        Workload,
        key=words,
        name=st.text(max_size=20),
        flops=st.floats(0, 1e15),
        args=st.lists(specs, max_size=4).map(tuple),
        ir=st.text(max_size=50),
    ),
    target=targets,
    weight=st.integers(1, 1000),
)


@given(tasks)
def test_a_task_survives_json(task: TuningTask) -> None:
    again = TuningTask.from_json(json.loads(json.dumps(task.to_json())))
    assert again == task
    assert again.workload.ir == task.workload.ir
    assert again.target.key == task.target.key


def test_a_targets_key_reads_as_a_target() -> None:
    target = Target.from_json({"num-cores": 2, "kind": "llvm", "mcpu": "znver5", "mattr": ["+avx2", "+fma"]})
    assert target.key == "llvm -mattr=+avx2,+fma -mcpu=znver5 -num-cores=2"
    assert target.get("num-cores") == 2
    assert target.get("arch") is None


def test_the_order_of_attributes_does_not_matter() -> None:
    target = Target.from_json({"kind": "llvm", "mcpu": "znver5", "num-cores": 2})
    assert target == Target.from_json({"num-cores": 2, "mcpu": "znver5", "kind": "llvm"})
