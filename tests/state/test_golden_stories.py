"""Each story in ``scripts`` comes out as it is written there; ``--rewrite`` writes down what comes out now."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.state.golden import StoryError, retold

STORIES = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story__comes_out_as_it_is_written(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text(encoding="utf-8")
    told = retold(path)
    if told == written:
        return
    if request.config.getoption("--rewrite"):
        path.write_text(told, encoding="utf-8")
        return
    lines = difflib.unified_diff(
        written.splitlines(), told.splitlines(), f"{path.name}, as written", "as it comes out", lineterm=""
    )
    pytest.fail("\n".join([*lines, "if that is right: pytest --rewrite"]), pytrace=False)


def test_there_are_stories__each_with_a_title() -> None:
    assert len(STORIES) >= 20
    assert [path.name for path in STORIES if not path.read_text(encoding="utf-8").startswith("# ")] == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("> client ann\n> ann dances\n", r"story.txt:2: '> ann dances': StoryError: nobody understands"),
        ("? how\n", r"story.txt:1: .*nobody can answer"),
        ("> client ann\n> ann submits x(y\n", r"story.txt:2: .*nobody understands the task"),
        ("> worker a: blue\n", r"story.txt:1: .*'blue', said of a worker"),
        ("client ann\n", r"story.txt:1: .*begins with none of"),
    ],
)
def test_line_that_nobody_understands__named(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "story.txt"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(StoryError, match=error):
        retold(path)
