"""The list of legal arrows is what happens, no more and no less."""

from __future__ import annotations

from shunter.state.names import ARROWS
from tests.state.random_cluster import Story

STATUSES = frozenset({status for arrow in ARROWS for status in arrow})


def test_random_clusters__make_every_legal_arrow_and_no_other() -> None:
    made: set[tuple[str, str]] = set()
    for seed in range(60):
        story = Story(seed)
        story.state.watch(STATUSES)
        story.run(200)
        made |= story.arrows
    assert made == ARROWS
