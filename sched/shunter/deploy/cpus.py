"""How many processors this process may really use."""

from __future__ import annotations

import math
import os


def cpu_count() -> int:
    """Processors for this process: what its affinity mask and its control group's quota allow, at least 1."""
    try:
        count = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # Not on every platform.
        count = os.cpu_count() or 1
    quota = _cgroup_quota()
    if quota is not None:
        count = min(count, math.ceil(quota))
    return max(1, count)


def _cgroup_quota(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """Processors that the control group grants (a container's ``--cpus``), or None if it sets no limit."""
    quotas = []
    for folder in _cgroup_folders(root, own):
        limit = _words(os.path.join(folder, "cpu.max"))  # version 2: "200000 100000", or "max 100000"
        if len(limit) != 2:  # version 1: two files, -1 for no limit
            limit = _words(os.path.join(folder, "cpu.cfs_quota_us")) + _words(
                os.path.join(folder, "cpu.cfs_period_us")
            )
        try:
            quota, period = (float(word) for word in limit)
        except ValueError:
            continue
        if quota > 0 and period > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _cgroup_folders(root: str, own: str) -> list[str]:
    """The control group's folder and those above it: each of them may set a limit."""
    folders = [root, os.path.join(root, "cpu")]
    for line in _lines(own):
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" or "cpu" in controllers.split(","):
            folder = os.path.join(root, "" if number == "0" else "cpu", path.lstrip("/"))
            while len(folder) > len(root):
                folders.append(folder)
                folder = os.path.dirname(folder)
    return folders


def _words(path: str) -> list[str]:
    lines = _lines(path)
    return lines[0].split() if lines else []


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
