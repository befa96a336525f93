"""The table of graph passes: its order, and which passes run for which target."""

from __future__ import annotations

import pytest

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.transform.passes import PASSES, Layout, PassContext, passes_for

CPU = Target.from_json({"kind": "llvm", "mcpu": "sandybridge"})
CPU_WITH_VNNI = Target.from_json({"kind": "llvm", "mcpu": "cascadelake"})
GPU = Target.from_json({"kind": "cuda", "arch": "sm_80"})


def names(target: Target, layout: Layout = Layout.BY_OPERATOR) -> list[str]:
    return [graph_pass.name for graph_pass in passes_for(PassContext(target=target, layout=layout))]


def test_levels_ascend() -> None:
    levels = [graph_pass.level for graph_pass in PASSES]
    assert levels == sorted(levels)


def test_passes_of_a_cpu() -> None:
    assert names(CPU) == [
        *(
            "ComputeBfloat16InFloat32",
            "BoundConstantIndices",
            "BoundComputedIndices",
            "FoldWeights",
            "FoldBatchNorms",
            "FoldConstant",
            "SimplifyPowers",
        ),
        *(
            "DropReshapes",
            "FoldPads",
            "CropKernels",
            "SimplifyTakes",
            "DecomposeTransposedConvolutions",
            "DecomposeOpsForInference",
        ),
        *("CanonicalizeBindings", "FuseHorizontally", "AddUpFloat16InFloat32", "ConvertLayout", "Normalize"),
        *("PropagateTransposesDown", "PropagateTransposesUp", "CanonicalizeBindings", "DeadCodeElimination"),
        *("FoldWeights", "FoldConstant", "WidenNarrowConvolutions"),
        *("SplitDilated", "FuseAttention", "FuseDepthwise", "SplitExtremes"),
        *("WriteScans", "DispatchSampling", "DispatchSortScan", "LegalizeOps", "BoundComputedIndices"),
        *("FuseOperators", "MarkConstants"),
    ]


def test_passes_of_a_gpu() -> None:
    assert names(GPU) == [
        *(
            "ComputeBfloat16InFloat32",
            "BoundConstantIndices",
            "BoundComputedIndices",
            "FoldWeights",
            "FoldBatchNorms",
            "FoldConstant",
            "SimplifyPowers",
        ),
        *("DropReshapes", "FoldPads", "CropKernels", "DecomposeOpsForInference", "CanonicalizeBindings"),
        *("FuseHorizontally", "AddUpFloat16InFloat32", "ConvertLayout", "Normalize"),
        *("CancelTransposes", "CanonicalizeBindings", "DeadCodeElimination", "FoldWeights", "FoldConstant"),
        *("DispatchSampling", "DispatchSortScan", "LegalizeOps", "BoundComputedIndices", "FuseOperators"),
        "MarkConstants",
    ]


def test_int8_products_come_after_the_layout_and_before_other_kernels() -> None:
    with_vnni = names(CPU_WITH_VNNI)
    assert [name for name in with_vnni if name != "MultiplyInt8"] == names(CPU)
    assert with_vnni.index("MultiplyInt8") == with_vnni.index("WidenNarrowConvolutions") - 1


@pytest.mark.parametrize(
    ("layout", "converting"),
    [
        (Layout.BY_OPERATOR, {"ConvertLayout"}),
        (Layout.AROUND_CONVOLUTIONS, {"ConvolveChannelsLast"}),
        (Layout.AS_FILE, set()),
    ],
)
def test_one_pass_converts_the_layout(layout: Layout, converting: set[str]) -> None:
    assert {"ConvertLayout", "ConvolveChannelsLast"} & set(names(CPU, layout)) == converting
