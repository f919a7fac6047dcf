"""Questions of clients, answered from the state's `View` and from what the server knows of itself."""

from __future__ import annotations

from collections.abc import Callable

from shunter.errors import UsageError
from shunter.server.columns import as_keys
from shunter.server.peers import Peers
from shunter.state import View


class Queries:
    """Answers the queries of docs/protocol.md.

    Args:
        get_view: ``state.view``.
        peers: for the addresses of workers.
        figures: what the server adds to ``status``.
    """

    __slots__ = ("_figures", "_get_view", "_peers")

    def __init__(
        self, get_view: Callable[[], View], peers: Peers, figures: Callable[[], dict[str, object]]
    ) -> None:
        self._get_view = get_view
        self._peers = peers
        self._figures = figures

    def answer(self, client: int, name: str, arguments: object) -> object:
        """Plain data for a reply to a client.

        Raises:
            UsageError: there is no such query, or an argument is missing or of the wrong type.
        """
        given: dict[object, object] = arguments if isinstance(arguments, dict) else {}
        view = self._get_view()
        if name == "who_has":
            return self._who_has(view, _keys(name, given))
        if name == "interest":
            return [list(row) for row in view.interest(client, as_keys(_keys(name, given)))]
        if name == "workers":
            return view.workers()
        if name == "tasks":
            return view.counts()
        if name == "status":
            return {**view.status(), **self._figures()}
        if name == "story":
            return view.story(_key(name, given))
        if name == "why":
            return view.why(_key(name, given))
        if name == "datasets":
            return view.datasets()
        raise UsageError(f"query: there is none called {name!r}")

    def _who_has(self, view: View, keys: list[str]) -> list[list[object]]:
        rows: list[list[object]] = []
        for key, status, nbytes, holders in view.who_has(as_keys(keys)):
            found = [self._peers.find_worker(number) for number in holders]
            rows.append([key, status, nbytes, [[ws.number, ws.address] for ws in found if ws is not None]])
        return rows


def _key(query: str, given: dict[object, object]) -> str:
    key = given.get("key")
    if not isinstance(key, str):
        raise UsageError(f"query: {query} needs a text 'key', not {type(key).__name__}")
    return key


def _keys(query: str, given: dict[object, object]) -> list[str]:
    keys = given.get("keys")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise UsageError(f"query: {query} needs 'keys', a list of text")
    return keys
