"""Plugins are guests: guarded, told only what they ask for, and free of cost when they ask for nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from json import loads
from typing import Final

from shunter.errors import UsageError
from shunter.plugins.base import SchedulerPlugin
from shunter.state import Change, View

#: A plugin that has raised this often is switched off.
FAILURES_MAX: Final = 10

logger = logging.getLogger("shunter.scheduler")


class PluginHost:
    """Calls the hooks of plugins after each settled batch.

    Args:
        plugins: in the order in which they are told.
        watch: ``state.watch``; told the union of all finish states, again whenever a plugin is switched off.
    """

    __slots__ = ("_failures", "_plugins", "_watch", "_watchers")

    def __init__(self, plugins: Sequence[SchedulerPlugin], watch: Callable[[frozenset[str]], None]) -> None:
        self._plugins: list[SchedulerPlugin] = list(plugins)
        self._watchers: list[SchedulerPlugin] = [p for p in self._plugins if _overrides_on_changes(p)]
        self._failures: dict[SchedulerPlugin, int] = {}
        self._watch = watch

    def start(self) -> None:
        if self._watchers:
            self._watch_union()
        for plugin in list(self._plugins):
            self._guard(plugin, "start", plugin.start)

    def tell(self, changes: list[Change], get_view: Callable[[], View]) -> None:
        """Hand over the changes of a batch; each plugin gets those that end in its own finish states."""
        if not changes or not self._watchers:
            return
        view = get_view()
        for plugin in list(self._watchers):
            states = plugin.finish_states
            mine = [change for change in changes if change.finish in states]
            if mine:
                self._guard(plugin, "on_changes", partial(plugin.on_changes, mine, view))

    def close(self) -> None:
        for plugin in list(self._plugins):
            self._guard(plugin, "close", plugin.close)
        self._plugins.clear()
        self._watchers.clear()

    def _guard(self, plugin: SchedulerPlugin, hook: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            failures = self._failures.get(plugin, 0) + 1
            self._failures[plugin] = failures
            logger.exception("plugin %s failed in %s (%d times)", name_of(plugin), hook, failures)
            if failures >= FAILURES_MAX:
                self._switch_off(plugin)

    def _switch_off(self, plugin: SchedulerPlugin) -> None:
        if plugin not in self._watchers:
            return
        logger.error("plugin %s is switched off after %d failures", name_of(plugin), FAILURES_MAX)
        self._watchers.remove(plugin)
        self._watch_union()

    def _watch_union(self) -> None:
        states: frozenset[str] = frozenset()
        for plugin in self._watchers:
            states |= plugin.finish_states
        self._watch(states)


def name_of(plugin: SchedulerPlugin) -> str:
    return plugin.name or type(plugin).__name__


def _overrides_on_changes(plugin: SchedulerPlugin) -> bool:
    return type(plugin).on_changes is not SchedulerPlugin.on_changes


def load_plugin(path: str, arguments: str = "") -> SchedulerPlugin:
    """Build the plugin that ``path`` names.

    Args:
        path: ``module:Class``, importable here.
        arguments: a JSON object of keyword arguments for the class, "" for none.

    Raises:
        UsageError: says which part is wrong: the path, the import, the class, or the arguments.
    """
    module_name, colon, class_name = path.partition(":")
    if not (colon and module_name and class_name):
        raise UsageError(f"plugin {path!r}: write module:Class, for example my_plugins:Durations")
    try:
        module = import_module(module_name)
    except Exception as error:  # A module may raise anything while it is imported.
        raise UsageError(
            f"plugin {path!r}: module {module_name!r} cannot be imported here: {type(error).__name__}: {error}"
        ) from error
    made_from: object = getattr(module, class_name, None)
    if made_from is None:
        raise UsageError(f"plugin {path!r}: module {module_name!r} has no {class_name!r}")
    if not (isinstance(made_from, type) and issubclass(made_from, SchedulerPlugin)):
        raise UsageError(f"plugin {path!r}: {class_name!r} is not a subclass of shunter.SchedulerPlugin")
    keywords = _keywords(path, arguments)
    try:
        return made_from(**keywords)
    except Exception as error:  # Its constructor is the plugin's own code.
        raise UsageError(
            f"plugin {path!r}: {class_name}({arguments}) failed: {type(error).__name__}: {error}"
        ) from error


def _keywords(path: str, arguments: str) -> dict[str, object]:
    if not arguments.strip():
        return {}
    try:
        value: object = loads(arguments)
    except ValueError as error:
        raise UsageError(f"plugin {path!r}: the arguments are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(
            f'plugin {path!r}: the arguments must be a JSON object such as {{"path": "log.jsonl"}}, '
            f"not {type(value).__name__}"
        )
    return value
