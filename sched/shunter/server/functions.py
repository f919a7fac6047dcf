"""Functions travel and are kept once: blobs interned by digest.

A task's spec (opaque to the state) is a pair of the interned function and the task's argument bytes. The table
holds functions weakly: a blob lives as long as a task that uses it, or a client that has announced it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias
from weakref import WeakValueDictionary

from shunter.errors import PeerError


class Function:
    """A function as the scheduler sees it: bytes and a name.

    ``number`` is the scheduler's own for it, never reused.
    """

    __slots__ = ("__weakref__", "blob", "digest", "name", "number")

    def __init__(self, number: int, digest: str, name: str, blob: bytes) -> None:
        self.number = number
        self.digest = digest
        self.name = name
        self.blob = blob


#: What the state carries for each task: its function and its pickled arguments.
RunSpec: TypeAlias = tuple[Function, bytes]


def digest_of(blob: bytes) -> str:
    """The digest by which a function is known everywhere (`shunter.serialize.digest` computes the same)."""
    return blake2b(blob, digest_size=16).hexdigest()


class Functions:
    """Every function that a task or a client refers to."""

    __slots__ = ("_by_digest", "_by_number", "_last")

    def __init__(self) -> None:
        self._by_digest: WeakValueDictionary[str, Function] = WeakValueDictionary()
        self._by_number: WeakValueDictionary[int, Function] = WeakValueDictionary()
        self._last = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def intern(self, digest: str, name: str, blob: bytes) -> Function:
        """The function with this blob; the first name it came with stays.

        Raises:
            PeerError: the digest is not that of the blob. Taken on trust, it would run another client's function.
        """
        if digest_of(blob) != digest:
            raise PeerError(
                f"functions: digest {digest!r} of {name!r} does not belong to its {len(blob)} bytes"
            )
        function = self._by_digest.get(digest)
        if function is None:
            self._last += 1
            function = Function(self._last, digest, name, blob)
            self._by_digest[digest] = function
            self._by_number[function.number] = function
        return function

    def find(self, number: int) -> Function | None:
        return self._by_number.get(number)
