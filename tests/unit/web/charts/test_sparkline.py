"""Small charts that the server draws."""

from __future__ import annotations

from tunefarm_api.web.charts.sparkline import FALL_HEIGHT, FALL_WIDTH, HEIGHT, WIDTH, fall, staircase


def test_a_sparkline_falls_within_its_box() -> None:
    points = [
        tuple(map(float, pair.split(",")))
        for pair in staircase([[8, None], [8, 4.0], [8, 2.0], [8, 2.0]]).split()
    ]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert points[0][1] < points[-1][1]
    assert staircase([]) == staircase([[8, None]]) == ""
    assert points[0][0] < 3  # it begins at the left edge, with the first that works
    (only, same) = staircase([[8, 1.0]]).split()
    assert only == same
    assert len(staircase([[1, 1.0 / n] for n in range(1, 5000)]).split()) < 200


def test_the_fall_of_the_best_stays_within_its_box() -> None:
    points = [
        tuple(map(float, pair.split(","))) for pair in fall([(0.0, 4.0), (5.0, 2.0), (9.0, 1.0)]).split()
    ]
    assert all(0 <= x <= FALL_WIDTH and 0 <= y <= FALL_HEIGHT for x, y in points)
    assert fall([]) == fall([(0.0, 1.0)]) == ""
