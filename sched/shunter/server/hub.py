"""The parts of a scheduler that listens, wired together.

    sockets → Link → Intake ─ events ─→ Turn → state → Outcome ─→ Delivery → Link → sockets
                        └─ answers of the server's own ──────────────↗

`Membership` lets peers in and sees them out, `Pressure` and `Vitals` watch the links, `Queries` answers from the view,
`Relay` fetches values, `PluginHost` tells plugins.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from shunter.errors import UsageError
from shunter.plugins.base import SchedulerPlugin
from shunter.server.delivery import Delivery
from shunter.server.facade import State
from shunter.server.functions import Functions
from shunter.server.intake import Intake
from shunter.server.membership import Membership
from shunter.server.peers import ClientPeer, Peers
from shunter.server.plugin_host import PluginHost
from shunter.server.pressure import Pressure
from shunter.server.queries import Queries
from shunter.server.relay import Relay
from shunter.server.turn import Question, Turn
from shunter.server.versions import build, version
from shunter.server.vitals import Vitals
from shunter.state import Outcome, QuestionAsked
from shunter.wire import messages
from shunter.wire.frames import Frame, encode
from shunter.wire.link import Listener, serve

logger = logging.getLogger("shunter.scheduler")

#: How long `Hub.close` waits for what is queued to leave, seconds.
CLOSE_S: Final = 5.0


class Hub:
    """Everything between the sockets and the state.

    Args:
        state: the state, or a false one.
        token: the cluster's.
        plugins: told of changes.
        worker_ttl: silence after which the state gives a worker up, seconds; 0 for never.
        clock: monotonic seconds: the state's clock.
        on_broken: called once if the state raises, after every peer has been told.
        on_shutdown: called with the reason when the state wants the scheduler to end.
    """

    def __init__(
        self,
        state: State,
        token: str,
        plugins: Sequence[SchedulerPlugin],
        *,
        worker_ttl: float,
        clock: Callable[[], float],
        on_broken: Callable[[], None],
        on_shutdown: Callable[[str], None],
    ) -> None:
        self._state = state
        self._token = token
        self._clock = clock
        self._on_broken = on_broken
        self._started_at = clock()
        self._questions = 0
        self._listener: Listener | None = None
        self._functions = Functions()
        self._peers = Peers()
        self._turn = Turn(state, clock=clock, answer=self._ask, deliver=self._deliver, fail=self._fail)
        self._membership = Membership(
            self._peers, self._turn.put, worker_ttl=worker_ttl, clock=clock, wall=time.time
        )
        self._delivery = Delivery(
            self._peers,
            drop=self._membership.drop,
            end=on_shutdown,
            put=self._turn.put,
            wake=self._turn.wake,
            answer=self._answer,
        )
        self._pressure = Pressure(self._peers)
        self._plugins = PluginHost(plugins, state.watch)
        self._queries = Queries(state.view, self._peers, self._figures)
        self._relay = Relay(token, self._peers, state.view, self._delivery.post)
        self._vitals = Vitals(self._peers, self._membership.drop, worker_ttl=worker_ttl, clock=clock)
        self._membership.watch(
            Intake(
                self._peers,
                self._functions,
                put=self._turn.put,
                post=self._delivery.post,
                relay=self._relay.take,
                drop=self._membership.drop,
                gone=self._membership.gone,
                hurry=self._turn.hurry,
                clock=clock,
            ),
            self._pressure,
        )

    @property
    def address(self) -> str:
        """Where it listens; "" before that."""
        return self._listener.address if self._listener is not None else ""

    async def listen(self, host: str, port: int) -> None:
        """Let peers in. Raises OSError: the port is in use, or the host is not here."""
        self._listener = await serve(host, port, self._token, self._membership.accept)
        self._vitals.start()
        self._plugins.start()
        self._turn.wake()

    async def close(self, reason: str) -> None:
        """Tell every peer and wait, for a bounded time, until their links are closed."""
        if self._listener is not None:
            self._listener.close()
        self._turn.stop()
        self._vitals.stop()
        self._relay.close()
        links = [peer.link for peer in self._peers]
        for link in links:
            link.close(reason)
        self._plugins.close()
        if links:
            await asyncio.wait([asyncio.ensure_future(link.wait_closed()) for link in links], timeout=CLOSE_S)
        for link in links:
            link.abort(reason)  # Does nothing to those that are closed.
        if self._listener is not None:
            await self._listener.wait_closed()

    # ------------------------------------------------------------------------------------- called by the turn

    def _deliver(self, outcome: Outcome) -> None:
        written = self._delivery.carry_out(outcome.instructions)
        self._pressure.check(written)
        self._plugins.tell(outcome.changes, self._state.view)

    def _ask(self, question: Question) -> None:
        """The state says when: what the client said before may still wait behind a graph of its own."""
        client = self._peers.find(question.client)
        if isinstance(client, ClientPeer):
            self._questions += 1
            client.questions[self._questions] = (question.name, question.arguments, question.request)
            self._state.step(QuestionAsked(client.number, self._questions), self._clock())

    def _answer(self, client: ClientPeer, number: int) -> Frame:
        name, arguments, request = client.questions.pop(number)
        try:
            reply = messages.Reply(
                request, True, self._queries.answer(client.number, name, arguments)
            ).frame()
            encode(reply)
        except UsageError as error:
            reply = messages.Reply(request, False, str(error)).frame()
        except Exception as error:
            logger.exception("query %r of %s failed", name, client)
            text = f"query {name}: the scheduler failed: {type(error).__name__}: {error}"
            reply = messages.Reply(request, False, text).frame()
        return reply

    def _fail(self, error: Exception) -> None:
        """The state has broken: an InternalError, whose text has the story, or anything else that it raised."""
        logger.critical("internal error in the state, please report it: %s", error, exc_info=error)
        first_line = str(error).partition("\n")[0]
        for peer in self._peers:
            peer.link.close(f"internal error in the scheduler: {type(error).__name__}: {first_line}")
        self._on_broken()

    def _figures(self) -> dict[str, object]:
        """What the server adds to the status."""
        return {
            "address": self.address,
            "version": version(),
            "build": build(),
            "pid": os.getpid(),
            "uptime": self._clock() - self._started_at,
            "queued_bytes": sum(peer.link.queued for peer in self._peers),
            "clients_paused": self._pressure.paused,
            "functions": len(self._functions),
        }
