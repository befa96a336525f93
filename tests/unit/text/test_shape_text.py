"""The text of an input's shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_text.shape_text import Dimension, ShapeTextError, read_shape, split_name


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1,3,224,224", "1,3,224,224"),
        ("1x3x224x224", "1,3,224,224"),
        (" 1 , 3 ", "1,3"),
        ("", ""),
        ("007", "7"),
        ("1,3,48,160|320|640", "1,3,48,160|320|640"),
        ("1,3,48,160/320/640", "1,3,48,160|320|640"),
        ("1,16:5|64:1", "1,16:5|64"),
        ("1..8,3", "1..8,3@1,2,4,8"),
        ("3..10", "3..10@4,8,10"),
        ("5..5,2", "5..5,2@5"),
        ("1..8,3@8,1,4", "1..8,3@1,4,8"),
        ("1..8,16|64@1|4:3|8", "1..8,16|64@1,4:3,8"),
    ],
)
def test_texts_have_one_canonical_form(text: str, canonical: str) -> None:
    choices = read_shape(text)
    assert str(choices) == canonical
    assert read_shape(canonical) == choices


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("1,3,x", 4, "a size is expected"),
        ("1,,3", 2, "a size is expected"),
        ("1,3,", 4, "a size is expected"),
        ("1,-3", 2, "a size is expected"),
        ("1,0", 2, "above zero"),
        ("1,2147483648", 2, "at most 2147483647"),
        ("1,160|160", 6, "given twice"),
        ("1,160|", 6, "a size is expected"),
        ("1,160:0", 6, "above zero"),
        ("1,160:1001", 6, "at most 1000"),
        ("1,1..8", 2, "only the first dimension"),
        ("8..1", 0, "ends below its start"),
        ("1|2..8", 0, "a range is written"),
        ("1,3@1,4", 3, "no range"),
        ("1..8@1,4", 5, "the range's end, 8"),
        ("2..8@1,8", 5, "outside of the range"),
        ("1..8,3@1,4,8,", 13, "a size is expected"),
        ("1,3;4", 3, "',' or the end"),
        ("1,٣", 2, "a size is expected"),
        (",".join("1" * 33), 64, "at most 32 dimensions"),
        ("1" * 2001, 2000, "at most 2000 characters"),
    ],
)
def test_an_error_names_its_position(text: str, position: int, reason: str) -> None:
    with pytest.raises(ShapeTextError, match="at character") as raised:
        read_shape(text)
    assert raised.value.position == position
    assert reason in raised.value.reason
    assert f"at character {position + 1} of" in str(raised.value)


def test_a_single_shape_is_fixed() -> None:
    assert read_shape("1,3,48,48").fixed == (1, 3, 48, 48)
    assert read_shape("1,3,48,48|96").fixed is None
    assert read_shape("4..4,3").fixed is None


def test_names_may_hold_any_characters() -> None:
    assert split_name("a=b:0=1,2") == ("a=b:0", "1,2")
    for text in ("1,2", "=1,2", ""):
        with pytest.raises(ShapeTextError, match="name"):
            split_name(text)


@given(st.text(alphabet="0123456789,|:.@x/ =-", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        choices = read_shape(text)
    except ShapeTextError:
        return
    assert read_shape(str(choices)) == choices
    for dimension in choices.dimensions:
        assert isinstance(dimension, Dimension)
        assert len(set(dimension.sizes)) == len(dimension.weights) == len(dimension.sizes)
