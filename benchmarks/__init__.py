"""Benchmarks: ``python -m benchmarks`` runs them all and prints one table; each module also runs alone.

========================================  =====================================================================
``python -m benchmarks.micro.core``       the state alone: microseconds and bytes a task
``python -m benchmarks.micro.steps``      the state alone: longest steps, against what they touch
``python -m benchmarks.micro.scaling``    the state alone: one event, with few and with many tasks and workers
``python -m benchmarks.cluster.…``        end to end, with processes: throughput, latency, startup, transfer, deep
========================================  =====================================================================

Every run prints JSON lines with the build, the versions and the machine. ``--peer`` runs a peer in the same go:
figures of different runs and machines do not compare, ratios within one run do.
"""
