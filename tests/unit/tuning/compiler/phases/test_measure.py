"""What a report says of a tuned network that counts as slower."""

from __future__ import annotations

from tunefarm_tuning.compiler.phases.measure import timings_in_words
from tunefarm_tuning.core.latency import Latency


def test_a_median_that_does_not_show_why_the_network_is_slower_is_explained() -> None:
    fast, slow = Latency.of([0.018], 1), Latency.of([0.022], 1)
    plain = "the network took 22.0 ms tuned and 18.0 ms untuned"
    assert timings_in_words(slow, fast, 1.05, slower=True) == plain
    assert (
        timings_in_words(fast, slow, 1.05, slower=False)
        == "the network took 18.0 ms tuned and 22.0 ms untuned"
    )
    told = timings_in_words(fast, slow, 1.05, slower=True)
    assert told.startswith("the network took 18.0 ms tuned and 22.0 ms untuned; ")
    assert "in most blocks the tuned network took longer" in told
