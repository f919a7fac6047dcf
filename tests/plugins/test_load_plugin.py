"""Plugins by name: ``module:Class`` and JSON arguments, with errors that say which part is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from shunter.errors import UsageError
from shunter.server.plugin_host import load_plugin

SOURCE = """
from shunter.plugins import SchedulerPlugin

class Mine(SchedulerPlugin):
    def __init__(self, path="", limit=0):
        if limit < 0:
            raise ValueError("limit is negative")
        self.path, self.limit = path, limit

class Stranger:
    pass

thing = 5
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugins_of_a_test.py").write_text(SOURCE)
    (tmp_path / "broken_plugin_of_a_test.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("arguments", "path", "limit"), [("", "", 0), (" ", "", 0), ('{"path": "x", "limit": 3}', "x", 3)]
)
def test_plugin_with_arguments__is_built(arguments: str, path: str, limit: int) -> None:
    plugin = load_plugin("plugins_of_a_test:Mine", arguments)
    assert (type(plugin).__name__, vars(plugin)) == ("Mine", {"path": path, "limit": limit})


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("path", "arguments", "complaint"),
    [
        ("Mine", "", "write module:Class"),
        (":Mine", "", "write module:Class"),
        ("plugins_of_a_test:", "", "write module:Class"),
        ("no_such_module_anywhere:Mine", "", "cannot be imported here: ModuleNotFoundError"),
        ("broken_plugin_of_a_test:Mine", "", "cannot be imported here: ZeroDivisionError"),
        ("plugins_of_a_test:Mien", "", "has no 'Mien'"),
        ("plugins_of_a_test:Stranger", "", "not a subclass of shunter.SchedulerPlugin"),
        ("plugins_of_a_test:thing", "", "not a subclass of shunter.SchedulerPlugin"),
        ("plugins_of_a_test:Mine", "{path", "not JSON"),
        ("plugins_of_a_test:Mine", '["x"]', "must be a JSON object"),
        ("plugins_of_a_test:Mine", '{"colour": 1}', "TypeError"),
        ("plugins_of_a_test:Mine", '{"limit": -1}', "ValueError: limit is negative"),
    ],
)
def test_plugin_that_cannot_be_built__says_why(path: str, arguments: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_plugin(path, arguments)
    assert complaint in str(caught.value)
    assert repr(path) in str(caught.value)
