"""Random clusters: everything that may happen, in any order; everything wanted ends, and nothing is left."""

from __future__ import annotations

import pytest

from tests.state.random_cluster import Story

CHUNK = 15  # seeds a test


@pytest.mark.parametrize("first", range(0, 150, CHUNK))
def test_random_cluster__comes_to_rest_and_is_empty(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            story = Story(seed)
            story.run(250)
            story.finish()
        except BaseException:
            print(f"to see this again: story = Story({seed}); story.run(250); story.finish()")
            raise


@pytest.mark.parametrize("first", range(1000, 1030, CHUNK))
def test_random_cluster_in_which_tasks_do_not_wait_for_ever__comes_to_rest_and_is_empty(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            story = Story(seed, timeout=0.5)
            story.run(250)
            story.finish()
        except BaseException:
            print(f"to see this again: story = Story({seed}, timeout=0.5); story.run(250); story.finish()")
            raise
