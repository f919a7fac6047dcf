"""Messages on data connections: their headers. `shunter.wire.bulk` sends and receives the values that follow.

``lens``: the sizes of each value's parts. ``nbytes``: the size of the body that they speak of.
"""

from __future__ import annotations

from typing import NamedTuple

from shunter.wire.fields import Fields
from shunter.wire.frames import Frame

__all__ = ["Busy", "Data", "Get", "Put", "PutFailed", "Stored"]


class Get(NamedTuple):
    """Ask for values; answered by `Data`, `Busy`, or `PutFailed` (looking them up failed)."""

    keys: list[str]

    def frame(self) -> Frame:
        return ["get", self.keys], ()

    @classmethod
    def parse(cls, fields: Fields) -> Get:
        return cls(fields.keys("key"))


class Data(NamedTuple):
    """Values by key. ``missing``: keys that were asked for and are not here."""

    keys: list[str]
    lens: list[list[int]]
    missing: list[str]

    @property
    def nbytes(self) -> int:
        return sum(map(sum, self.lens))

    def frame(self) -> Frame:
        return ["data", self.keys, self.lens, self.missing], ()

    @classmethod
    def parse(cls, fields: Fields) -> Data:
        return cls(fields.keys("key"), fields.integer_lists("lens"), fields.key_list("missing key"))


class Busy(NamedTuple):
    """No room for another transfer now."""

    def frame(self) -> Frame:
        return ["busy"], ()

    @classmethod
    def parse(cls, fields: Fields) -> Busy:
        return cls()


class Put(NamedTuple):
    """Store values; answered by `Stored`, `Busy` or `PutFailed`."""

    keys: list[str]
    lens: list[list[int]]

    @property
    def nbytes(self) -> int:
        return sum(map(sum, self.lens))

    def frame(self) -> Frame:
        return ["put", self.keys, self.lens], ()

    @classmethod
    def parse(cls, fields: Fields) -> Put:
        return cls(fields.keys("key"), fields.integer_lists("lens"))


class Stored(NamedTuple):
    """The values are stored. ``nbytes``: the size of each."""

    nbytes: list[int]

    def frame(self) -> Frame:
        return ["stored", self.nbytes], ()

    @classmethod
    def parse(cls, fields: Fields) -> Stored:
        return cls(fields.integers("nbytes"))


class PutFailed(NamedTuple):
    """The request failed at the worker."""

    text: str

    def frame(self) -> Frame:
        return ["failed", self.text], ()

    @classmethod
    def parse(cls, fields: Fields) -> PutFailed:
        return cls(fields.text("text"))
