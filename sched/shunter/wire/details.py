"""What a connector says about itself in the handshake, by role, and the check of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shunter.errors import PeerError, UsageError
from shunter.wire.contact import parse_address
from shunter.wire.fields import Fields, excerpt
from shunter.wire.options import resources

__all__ = ["ClientDetails", "ParentDetails", "WorkerDetails", "check_details"]


class ClientDetails(NamedTuple):
    """A client's."""

    name: str

    def as_dict(self) -> dict[str, object]:
        """As it travels."""
        return self._asdict()

    @classmethod
    def parse(cls, details: Mapping[str, object]) -> ClientDetails:
        """Check and read. Raises PeerError naming the field and what was found."""
        return cls(_field(details, "name").key("name"))


class ParentDetails(NamedTuple):
    """Those of a parent of worker processes."""

    name: str
    pid: int

    def as_dict(self) -> dict[str, object]:
        """As it travels."""
        return self._asdict()

    @classmethod
    def parse(cls, details: Mapping[str, object]) -> ParentDetails:
        """Check and read. Raises PeerError naming the field and what was found."""
        return cls(_field(details, "name").key("name"), _field(details, "pid").integer("pid"))


class WorkerDetails(NamedTuple):
    """A worker's.

    ``address``: of its data port. ``clock``: its wall clock at the hello, seconds. ``memory_limit``: bytes, 0
    for none. ``parent``: number of its parent's connection, −1 for none.
    """

    name: str
    address: str
    host: str
    nthreads: int
    memory_limit: int
    resources: dict[str, float]
    pid: int
    clock: float
    parent: int

    def as_dict(self) -> dict[str, object]:
        """As it travels."""
        return self._asdict()

    @classmethod
    def parse(cls, details: Mapping[str, object]) -> WorkerDetails:
        """Check and read. Raises PeerError naming the field and what was found."""
        address = _field(details, "address").key("address")
        try:
            parse_address(address)
        except UsageError as error:
            raise PeerError(f"details: field 'address': {error}") from None
        return cls(
            _field(details, "name").key("name"),
            address,
            _field(details, "host").key("host"),
            _field(details, "nthreads").integer("nthreads", 1),
            _field(details, "memory_limit").integer("memory_limit"),
            resources(_field(details, "resources"), "resources"),
            _field(details, "pid").integer("pid"),
            _field(details, "clock").number("clock"),
            _field(details, "parent").integer("parent", -1),
        )


def check_details(role: str, details: object) -> dict[str, object]:
    """Check the details of a role by reading them, and drop what is not known. Raises PeerError."""
    if type(details) is not dict:
        raise PeerError(f"details of a {role} must be an object, found {excerpt(details)}")
    if role == "client":
        return ClientDetails.parse(details).as_dict()
    if role == "worker":
        return WorkerDetails.parse(details).as_dict()
    if role == "parent":
        return ParentDetails.parse(details).as_dict()
    return {}  # A data connection says nothing about itself.


def _field(details: Mapping[str, object], name: str) -> Fields:
    return Fields(["details", details[name]] if name in details else ["details"], b"")
