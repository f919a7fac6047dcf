"""The worker: runs tasks, holds their results, and fetches what they need from its peers.

=================  ===================================================================================
`state`            the pure machine: events in, instructions out; read this first
`events`           everything that can happen to it         `instructions`  everything that can come out
`ready`            runnable tasks by priority and resources `fetching`      what to fetch from whom
`worker`           the asyncio shell that carries between the machine and the world
`threads`          the task threads                         `functions`     functions, unpickled once
`store`            values by key                            `transfers`     fetch threads, and the data port
`blame`            which runs had started, in shared memory `context`       what a running task may ask for
`parent`           the process that starts, watches and restarts worker processes
=================  ===================================================================================
"""
