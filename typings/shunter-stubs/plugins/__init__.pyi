# Generated from the sources by typings/generate.py: do not edit. To refresh: tox -e fresh
from shunter.plugins.base import ALL_STATES as ALL_STATES, SchedulerPlugin as SchedulerPlugin
from shunter.state import Change as Change, View as View

__all__ = [
    "ALL_STATES",
    "Change",
    "SchedulerPlugin",
    "View",
]

