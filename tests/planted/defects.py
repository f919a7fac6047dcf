"""Defects to plant, one at a time: a forgotten index, a missed waiter, a stale run that counts, …"""

from __future__ import annotations

from typing import Final, NamedTuple


class Defect(NamedTuple):
    """In ``module``, ``before`` (which is there exactly once) becomes ``after``.

    ``profile``: of the simulator, where only one of them gives it much of a chance.
    """

    module: str
    before: str
    after: str
    profile: str | None = None


DEFECTS: Final[dict[str, Defect]] = {
    # ------------------------------------------------------------------------------------- wake-ups and waiters
    "a dependent is not woken": Defect(
        "shunter.state.transitions",
        """            if other.state == WAITING and links.input_arrived(other):
                cluster.recommend(other, QUEUED)""",
        """            if other.state == WAITING:
                links.input_arrived(other)""",
    ),
    "a lost input is not waited for": Defect(
        "shunter.state.transitions",
        "            links.input_lost(other)",
        "            pass",
    ),
    "tasks without a worker do not hear of a new one": Defect(
        "shunter.state.membership",
        """    for ts in cluster.no_worker:
        cluster.recommend(ts, QUEUED)
    backlog.mark_hungry""",
        """    backlog.mark_hungry""",
    ),
    "a delayed retry is never due": Defect(
        "shunter.state.reactions",
        """            del cluster.delayed[ts]
            cluster.recommend(ts, QUEUED)""",
        """            pass""",
    ),
    "what is given back is not run again": Defect(
        "shunter.state.reactions",
        """        cluster.promised[ts] = thief
        _run_again(cluster, ts)""",
        """        cluster.promised[ts] = thief""",
    ),
    "dependents of what failed are not blamed": Defect(
        "shunter.state.transitions",
        """            if other.state == WAITING:
                cluster.recommend_erred(other, failure)""",
        """            pass""",
    ),
    # ------------------------------------------------------------------------------------- stale news
    "the result of a stale run counts": Defect(
        "shunter.state.reactions",
        "if ts is not None and ts.run_id == run_ids[i] and ts.processing_on is ws:",
        "if ts is not None and ts.processing_on is ws:",
        profile="again",
    ),
    "the failure of a stale run counts": Defect(
        "shunter.state.reactions",
        "if ts is not None and run_id != 0 and ts.run_id == run_id:",
        "if ts is not None and ts.run_id != 0:",
        profile="again",
    ),
    "a worker keeps values of former lives": Defect(
        "shunter.worker.values",
        "    if known is not None and known != life:",
        "    if known is not None and known != life and known < 0:",
        profile="again",
    ),
    # ------------------------------------------------------------------------------------- holders
    "a worker holds what it has only been told to fetch": Defect(
        "shunter.state.dispatch",
        "    message.inputs.append(inputs)\n",
        """    message.inputs.append(inputs)
    from shunter.state.replicas import add_holder

    for dep in deps:
        add_holder(dep, ws, wanted=False)
""",
    ),
    "holders are not told to drop what nobody needs": Defect(
        "shunter.state.transitions",
        "        cluster.outbox.free(holder.number, ts.key)\n        replicas.remove_holder(ts, holder)",
        "        replicas.remove_holder(ts, holder)",
    ),
    # ------------------------------------------------------------------------------------- indexes and sums
    "an idle thread is forgotten": Defect(
        "shunter.state.dispatch",
        """    if has_idle_thread(ws):
        list_idle(cluster, ws)


def _next_for""",
        """

def _next_for""",
    ),
    "occupancy leaks": Defect(
        "shunter.state.assignment",
        """    else:
        ws.occupancy_us -= ts.run_work_us
    ts.run_work_us = 0
    if ws.asked_back""",
        """    ts.run_work_us = 0
    if ws.asked_back""",
    ),
    "resources leak": Defect(
        "shunter.state.assignment",
        "            left = ws.used.get(name, 0) - millionths(amount)",
        "            left = ws.used.get(name, 0)",
    ),
    "a worker's slot leaks": Defect(
        "shunter.worker.runs",
        "    t.occupied -= 1\n",
        "    t.occupied -= 1 if run.wanted else 0\n",
    ),
    "a worker does not answer when it is asked for tasks back": Defect(
        "shunter.worker.reactions",
        "    if asked is not None:\n        t.outbox.push(AnswerTakeBack(asked[0], asked[1]))",
        "",
    ),
    # ------------------------------------------------------------------------------------- clients
    "what is released stays": Defect(
        "shunter.state.clients",
        "        cluster.recommend(ts, RELEASED)\n        if len(cluster.agenda",
        "        if len(cluster.agenda",
    ),
    "what a client wanted that has gone stays": Defect(
        "shunter.state.clients",
        "    release_everything(cluster, cs)\n    restart",
        "    restart",
    ),
    "a cancel takes what another client wants": Defect(
        "shunter.state.clients",
        "        wanters = interest.wanters_of(ts) if event.force else [cs]",
        "        wanters = interest.wanters_of(ts)",
    ),
    "a client's events overtake its graph": Defect(
        "shunter.state.reactions",
        "    elif cs.incoming is not None or cs.deferred:\n        cs.deferred.append(event)\n",
        "",
    ),
    # ------------------------------------------------------------------------------------- blame
    "whatever was sent to a dead worker is blamed": Defect(
        "shunter.state.membership",
        "        if grave.run_ids[i] not in blamed or cluster",
        "        if cluster",
    ),
}
