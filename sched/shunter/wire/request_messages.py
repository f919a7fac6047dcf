"""Requests of a client that the scheduler answers with one `Reply`. See `client_messages` first.

``request``: the client's own number for it, which the reply repeats.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from shunter.wire.fields import Fields
from shunter.wire.frames import Frame

__all__ = [
    "DATASET_DATA_MAX",
    "DATASET_NAME_MAX",
    "GetDataset",
    "Publish",
    "Query",
    "Reply",
    "Restart",
    "Unpublish",
]

#: Longest name of a dataset, and longest text that is kept with one; characters.
DATASET_NAME_MAX: Final = 256
DATASET_DATA_MAX: Final = 256 * 1024


class Query(NamedTuple):
    """A question.

    ``arguments``: plain; if they have ``key`` it is a key, ``keys`` is a list of keys, ``workers`` is a list of
    numbers.
    """

    request: int
    name: str
    arguments: dict[str, object]

    def frame(self) -> Frame:
        return ["query", self.request, self.name, self.arguments], ()

    @classmethod
    def parse(cls, fields: Fields) -> Query:
        request, name = fields.integer("request"), fields.key("name")
        arguments = fields.plain_mapping("arguments")
        if "key" in arguments:
            fields.inner([arguments["key"]]).key("arguments.key")
        if "keys" in arguments:
            fields.inner([arguments["keys"]]).key_list("arguments.keys")
        if "workers" in arguments:
            fields.inner([arguments["workers"]]).integer_list("arguments.workers")
        return cls(request, name, arguments)


class Restart(NamedTuple):
    """Give up everything, of all clients, and replace the workers.

    Answered with how many workers are there, once they are as many as before; not ok after ``timeout`` seconds.
    """

    request: int
    timeout: float

    def frame(self) -> Frame:
        return ["restart", self.request, self.timeout], ()

    @classmethod
    def parse(cls, fields: Fields) -> Restart:
        return cls(fields.integer("request"), fields.number("timeout", low=0.0))


class Publish(NamedTuple):
    """Keep keys under a name until it is unpublished.

    ``data``: text that is handed back with the keys, at most `DATASET_DATA_MAX` characters; the scheduler does not
    look into it. ``replace``: in place of what has the name; otherwise a name in use is refused. Answered with None.
    """

    request: int
    name: str
    keys: list[str]
    data: str
    replace: bool

    def frame(self) -> Frame:
        return ["publish", self.request, self.name, self.keys, self.data, self.replace], ()

    @classmethod
    def parse(cls, fields: Fields) -> Publish:
        request, name, keys = fields.integer("request"), _dataset_name(fields), fields.keys("key")
        data = fields.key("data")
        if len(data) > DATASET_DATA_MAX:
            fields.fail("data", f"at most {DATASET_DATA_MAX} characters", data)
        return cls(request, name, keys, data, fields.flag("replace"))


class Unpublish(NamedTuple):
    """Let a dataset go. Answered with whether there was one."""

    request: int
    name: str

    def frame(self) -> Frame:
        return ["unpublish", self.request, self.name], ()

    @classmethod
    def parse(cls, fields: Fields) -> Unpublish:
        return cls(fields.integer("request"), _dataset_name(fields))


class GetDataset(NamedTuple):
    """The keys of a dataset, which the client wants from then on: ``{"keys": [key], "data": text}``.

    What has become of each key is told after the reply.
    """

    request: int
    name: str

    def frame(self) -> Frame:
        return ["get-dataset", self.request, self.name], ()

    @classmethod
    def parse(cls, fields: Fields) -> GetDataset:
        return cls(fields.integer("request"), _dataset_name(fields))


class Reply(NamedTuple):
    """The answer to a request. ``value``: plain data; a text with the error if not ``ok``."""

    request: int
    ok: bool
    value: object

    def frame(self) -> Frame:
        return ["reply", self.request, self.ok, self.value], ()

    @classmethod
    def parse(cls, fields: Fields) -> Reply:
        return cls(fields.integer("request"), fields.flag("ok"), fields.plain("value"))


def _dataset_name(fields: Fields) -> str:
    name = fields.key("name")
    if not 1 <= len(name) <= DATASET_NAME_MAX:
        fields.fail("name", f"text of 1 to {DATASET_NAME_MAX} characters", name)
    return name
