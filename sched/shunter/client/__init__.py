"""The user's side: submit work, get futures, gather results.

The map, bottom up: `table` knows what became of each key (pure), `futures` wraps its entries; `options`, `graphs`
and `functions` turn what the user says into columns; `outgoing` keeps them in one order and `writers` puts them
on the wire; `failures` turns failures back into exceptions; `session` is one connection with all of that;
`gather` and `scatter` move values; `client` and `async_client` are the two faces.
"""
