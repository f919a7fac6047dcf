"""Starting clusters: `LocalCluster` runs a scheduler and workers on this machine."""

from __future__ import annotations
