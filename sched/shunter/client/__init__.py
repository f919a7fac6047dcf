"""The user's side: submit work, get futures, gather results.

The map, bottom up: `table` knows what became of each key (pure), `waiting` waits for its entries, `futures` wraps
them. `options`, `graphs` and `functions` turn what the user says into columns; `outgoing` keeps them in one order,
`writers` puts them on the wire; `connection` reads, writes and asks. `submitting` sends tasks, `giving_up` tells
what is not wanted any more, `results` waits and unpickles, with `failures` for exceptions; `gather` and `scatter`
move values, `datasets` publishes futures under names. `session` is one connection with all of that; `client` and
`async_client` are its faces over `base`.
"""
