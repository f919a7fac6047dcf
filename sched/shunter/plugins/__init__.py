"""Plugins: what one needs to write a `SchedulerPlugin`."""

from __future__ import annotations

from shunter.plugins.base import ALL_STATES, SchedulerPlugin
from shunter.state import Change, View

__all__ = ["ALL_STATES", "Change", "SchedulerPlugin", "View"]
