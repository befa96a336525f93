"""Which shapes the code for all others takes, and the messages of those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm_tuning.artifact.container import manifest_in, open_zip
from tunefarm_tuning.artifact.loader import ArtifactError, ArtifactInputError
from tunefarm_tuning.artifact.specialisations import ShapeTable


def part(**changes: Any) -> dict[str, Any]:
    return {
        "entry": "main_1",
        "inputs": [
            {"name": "image", "shape": ["batch", 3, "height"], "dtype": "float32"},
            {"name": "mask", "shape": ["batch"], "dtype": "bool"},
        ],
        "outputs": [{"name": "y", "shape": [None, 5], "dtype": "float32"}],
        "dimensions": [
            {"name": "batch", "multiple": 1, "least": None, "most": None},
            {"name": "height", "multiple": 32, "least": 64, "most": 512},
        ],
        "conditions": [
            {"kind": "least", "size": ["-", ["*", "batch", "height"], 100], "of": 50, "node": "'a' (Slice)"}
        ],
        "latency_sec": 0.25,
        **changes,
    }


def deep(levels: int) -> Any:
    return ["+", deep(levels - 1), 1] if levels else "batch"


def table() -> ShapeTable:
    inputs = [
        {"name": "image", "shape": [1, 3, 224], "dtype": "float32"},
        {"name": "mask", "shape": [1], "dtype": "bool"},
    ]
    outputs = [{"name": "y", "shape": [1, 5], "dtype": "float32"}]
    return ShapeTable({"inputs": inputs, "outputs": outputs, "other_shapes": part()})


def test_shapes_without_code_of_their_own_run_in_the_code_for_all() -> None:
    shapes = table()
    assert not shapes.is_single
    assert shapes.find(((1, 3, 224), (1,)))[0].entry == "main"
    item, count = shapes.find(((4, 3, 96), (4,)))
    assert (item.entry, count, item.shapes) == ("main_1", None, ((4, 3, 96), (4,)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (((1, 3, 100), (1,)), r"dimension 'height' of input 'image' is 100: the model takes multiples of 32"),
        (((1, 3, 32), (1,)), r"'height' of input 'image' is 32: the model takes at least 64"),
        (((1, 3, 544), (1,)), r"'height' of input 'image' is 544: the model takes at most 512"),
        (((2, 3, 64), (3,)), r"dimension 'batch' is 2 in input 'image' and 3 in input 'mask'"),
        (
            ((1, 4, 64), (1,)),
            r"dimension 1 of input 'image' is 4, but the model takes 3: \[batch, 3, height\]",
        ),
        (((1, 64), (1,)), r"input 'image' has shape \[1, 64\], but the model takes \[batch, 3, height\]"),
        (
            ((2, 3, 64), (2,)),
            r"with the dimensions 'batch' = 2, 'height' = 64, \(batch \* height\) - 100 is 28, but .* at least 50 for node 'a'",
        ),
        (((0, 3, 64), (0,)), r"'batch' of input 'image' is 0: the model takes at least 1"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused_with_the_dimension(
    given: tuple[tuple[int, ...], ...], message: str
) -> None:
    with pytest.raises(ArtifactInputError, match=message):
        table().find(given)


def test_a_session_lists_open_dimensions_by_name() -> None:
    assert table().open_shape("inputs", 0) == ["batch", 3, "height"]
    assert table().open_shape("outputs", 0) == ["y_dim_0", 5]


@pytest.mark.parametrize(
    "changes",
    [
        {"entry": 3},
        {"dimensions": []},
        {"dimensions": [{"name": "batch", "multiple": 0, "least": None, "most": None}]},
        {"inputs": [{"name": "image", "shape": [-1], "dtype": "float32"}]},
        {"outputs": [{"name": "y", "shape": "any", "dtype": "float32"}]},
        {"latency_sec": "fast"},
        {"conditions": [{"kind": "least", "size": "width", "of": 1, "node": "a"}]},
        {"conditions": [{"kind": "most", "size": "batch", "of": 1, "node": "a"}]},
        {"conditions": [{"kind": "least", "size": ["**", "batch", 9], "of": 1, "node": "a"}]},
        {"conditions": [{"kind": "least", "size": deep(60), "of": 1, "node": "a"}]},
    ],
)
def test_a_malformed_part_of_the_manifest_is_damage(changes: dict[str, Any], tmp_path: Any) -> None:
    import json
    import zipfile

    manifest = {
        "format": "tunefarm-artifact", "format_version": 2, "entries": {"lib.so": {"sha256": "0", "size_bytes": 1}},
        "inputs": [], "outputs": [], "target": {"kind": "llvm"}, "target_key": "cpu", "versions": {},
    }  # fmt: skip
    for other, is_right in ((part(), True), (part(**changes), False)):
        path = tmp_path / f"{is_right}.tunefarm"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("manifest.json", json.dumps({**manifest, "other_shapes": other}))
        with open_zip(path) as archive:
            if is_right:
                assert manifest_in(archive, path)["other_shapes"] == other
            else:
                with pytest.raises(ArtifactError, match="other_shapes"):
                    manifest_in(archive, path)
