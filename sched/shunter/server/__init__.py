"""The scheduler's server: sockets, time and logs around the state.

It decides nothing. Messages become events (`intake`), instructions become messages (`delivery`), deadlines become
`Tick`; `scheduler` holds the loop. Always interpreted, asyncio from the standard library, never an unpickler.
"""
