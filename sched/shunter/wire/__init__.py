"""What shunter's processes say to each other, and how it gets there. Nothing here ever unpickles.

The map, bottom up: `frames` lays a message into bytes and finds it again; `fields` and `options` check what a
header says; `messages` is the door to all messages (those of `client_messages`, `request_messages`,
`worker_messages`, `data_messages`, `shared_messages`), one class each with ``frame()`` to send it, and one
checking function a direction to read it; `handshake` with `details` opens every connection; `link` (over
`greeting`) carries control messages in an asyncio loop; `bulk` (over `channel` and `sockets`) carries values
on threads; `contact` knows addresses, tokens and the scheduler file. The contract in prose:
``docs/protocol.md``.
"""
