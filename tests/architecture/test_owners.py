"""Each field of the state has one writer. This map says which module; anyone may read.

"Who broke this?" is answered by opening one file. `__init__` of a class may set its own fields besides.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Final

from tests.architecture.sources import PACKAGE, Module, modules, state_modules
from tests.architecture.writes import Fields, Write, fields_of, writes

#: {class: {module that writes: fields}}. A field that is not here is never written after its object was made.
OWNERS: Final[dict[str, dict[str, str]]] = {
    "TaskState": {
        "links": "dependencies dependent dependents n_waiting n_waiters n_holds",
        "backlog": "backlog serial estimate_us",
        "assignment": "processing_on run_id run_work_us is_long_running",
        "replicas": "holder holders nbytes",
        "interest": "wanter wanters",
        "graphs": "kind spec options user_priority generation order",
        "limits": "share",
        "transitions": "state retries suspicion failure avoid",
    },
    "WorkerState": {
        "assignment": (
            "processing n_long_running occupancy_us used asked_back n_expected n_held progress_at "
            "sent_bucket sent_slot sent_floor"
        ),
        "replicas": "has_what nbytes",
        "backlog": "ready roots demands backlog_bucket backlog_slot backlog_floor listed_hungry",
        "costs": "in_clock out_clock link_bandwidth",
        "placement": "tally tally_mark",
        "dispatch": "listed_idle",
        "membership": "status last_seen process spilled cpu death",
    },
    "ClientState": {
        "interest": "wants children",
        "reactions": "deferred incoming parts",
    },
    "Kind": {
        "groups": "alive finished idle",
        "costs": "duration_us nbytes samples",
    },
    "Backlog": {
        "backlog": "heap run serials at count work_us owner",
    },
    "Counts": {
        "groups": "released waiting no_worker queued processing memory erred",
    },
    "LoadIndex": {  # workers_by_sent and workers_by_backlog
        "assignment": "buckets mask",
        "backlog": "buckets mask",
    },
    "Cluster": {  # tables and counters; those with several writers are lists of what waits, or numbers drawn
        "cluster": "touched timers next_serial log",
        "scheduler": "now stamp steps watched outbox",
        "backlog": "unsent next_serial no_worker hungry",
        "assignment": "next_run_id",
        "placement": "marks",
        "dispatch": "idle is_retry_armed marks",
        "groups": "kinds idle_kinds",
        "graphs": "tasks generation next_index",
        "transitions": "tasks delayed complaints promised bereaved lost_with",
        "engine": "promised",
        "membership": (
            "workers worker_list workers_by_address workers_by_name workers_by_host suppliers graves total_threads "
            "running had_workers dropped_events is_no_worker_armed next_index lost_with"
        ),
        "reactions": "incoming delayed complaints dropped_events promised",
        "clients": "clients tasks next_index dropped_events",
        "keeping": "datasets bereaved parents",
        "restart": "restarts next_restart",
        "idleness": "busy_at was_busy is_idle_timeout_armed",
        "validate": "touched",
    },
}
#: Modules whose classes these are, and which may fill them as they please when nobody else has them yet.
HOMES: Final = ("shunter.state.model", "shunter.state.cluster")


@cache
def records() -> Fields:
    """The classes under this rule."""
    return {
        name: fields
        for home in HOMES
        for name, fields in fields_of(modules()[home]).items()
        if name in OWNERS
    }


@cache
def every_class() -> Fields:
    """All classes of the state."""
    return {name: fields for module in state_modules() for name, fields in fields_of(module).items()}


def owners_of(write: Write) -> set[str] | None:
    """The modules that may make a write; None if it is to no field of ours."""
    known = records()
    if write.record:
        classes = [write.record] if write.field in known.get(write.record, {}) else []
    else:  # A field whose name others have too may be theirs.
        classes = [name for name, fields in every_class().items() if write.field in fields]
        classes = classes if set(classes) <= set(known) else []
    if not classes:
        return None
    return {
        module for name in classes for module, fields in OWNERS[name].items() if write.field in fields.split()
    }


def test_field__is_written_by_its_owner_alone() -> None:
    wrong = []
    for module in state_modules():
        own_classes = fields_of(module)
        for write in writes(module, records() | own_classes):
            owners = owners_of(write)
            if owners is None or (write.in_init and write.record in own_classes):
                continue
            if module.leaf not in owners:
                name = f"{write.record or '?'}.{write.field}"
                wrong.append(f"{write.where}: {name} belongs to {' and '.join(sorted(owners)) or 'nobody'}")
    assert not wrong, "\n".join(wrong)


def test_owner__is_named_for_no_field_that_is_gone() -> None:
    stale = [
        f"{name}.{field}"
        for name, owners in OWNERS.items()
        for fields in owners.values()
        for field in fields.split()
        if field not in records().get(name, {})
    ]
    assert not stale, f"no such field: {stale}"


def test_field_of_a_task__has_exactly_one_owner() -> None:
    for name in ("TaskState", "WorkerState", "ClientState", "Kind", "Backlog"):
        fields = [field for fields in OWNERS[name].values() for field in fields.split()]
        assert len(fields) == len(set(fields)), f"{name}: a field with two owners"


def test_analysis__sees_writes_through_aliases_and_containers() -> None:
    text = (
        "def f(ts: TaskState, found: dict[WorkerState, None]) -> None:\n"
        "    holders = ts.holders\n"
        "    holders[1] = None\n"
        "    del ts.holder\n"
        "    ts.nbytes += 1\n"
        "    heappush(ts.backlog.heap, 1)\n"
        "    for one in found:\n"
        "        one.has_what.pop(ts)\n"
        "    local = []\n"
        "    local.append(ts)\n"
    )
    module = Module("x", PACKAGE / "x.py", ast.parse(text), False)
    seen = [(write.record, write.field) for write in writes(module, records())]
    assert sorted(seen) == [
        ("Backlog", "heap"),
        ("TaskState", "holder"),
        ("TaskState", "holders"),
        ("TaskState", "nbytes"),
        ("WorkerState", "has_what"),
    ]
