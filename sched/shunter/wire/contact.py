"""Where a scheduler is and how to prove that one may speak to it: addresses, tokens and the scheduler file.

The scheduler file is JSON, ``{"address": "tcp://host:port", "token": "…"}``, written atomically and readable
by its owner only: whoever can read it can run code on the cluster.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import NamedTuple

from shunter.errors import UsageError

__all__ = ["Contact", "format_address", "new_token", "parse_address", "read", "read_token_file", "write"]


class Contact(NamedTuple):
    """What a connector needs. ``token`` is empty on clusters started with ``--insecure``."""

    address: str
    token: str

    def __repr__(self) -> str:
        return f"Contact({self.address!r}, token={'…' if self.token else ''!r})"  # Tokens stay out of logs.


def write(path: str | os.PathLike[str], contact: Contact) -> None:
    """Write the scheduler file: atomically (a reader sees the old or the new one), mode 0600.

    Raises:
        OSError: the folder does not exist or cannot be written to.
    """
    path = os.fspath(path)
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    # O_EXCL: never through a link that somebody has put there; the mode is right from the first byte.
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            json.dump({"address": contact.address, "token": contact.token}, file)
            file.write("\n")
            file.flush()
            os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: str | os.PathLike[str]) -> Contact:
    """Read a scheduler file.

    Raises:
        UsageError: there is none, or it isn't one; the message says what to do.
    """
    path = os.fspath(path)
    text = _read_text(path, "scheduler file", f"start one with: shunter scheduler --scheduler-file {path}")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not a scheduler file: it does not hold a JSON object")
    address, token = content.get("address"), content.get("token")
    if not isinstance(address, str) or not isinstance(token, str):
        raise UsageError(f'{path} is not a scheduler file: it lacks "address" or "token" as text')
    parse_address(address)
    return Contact(address, token)


def read_token_file(path: str | os.PathLike[str]) -> str:
    """The token in a file: its text without white space around it. Raises UsageError if there is none."""
    path = os.fspath(path)
    token = _read_text(path, "token file", "write the cluster's token into it, mode 0600").strip()
    if not token:
        raise UsageError(f"token file {path} is empty: write the cluster's token into it")
    return token


def new_token() -> str:
    """A fresh token: 64 hex digits."""
    return secrets.token_hex(32)


def parse_address(address: str) -> tuple[str, int]:
    """``tcp://host:port`` → (host, port). IPv6 hosts stand in brackets. Raises UsageError."""
    scheme, separator, rest = address.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not separator or not colon:
        raise UsageError(f"an address reads tcp://host:port, not {address!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise UsageError(f"an IPv6 host stands in brackets, tcp://[::1]:8786, not {address!r}")
    if not host or not host.isprintable() or any(each in host for each in " /@[]"):
        raise UsageError(f"an address reads tcp://host:port, not {address!r}")
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) < 65536:
        raise UsageError(f"the port of an address is a number from 1 to 65535, not {port!r} in {address!r}")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """(host, port) → ``tcp://host:port``, with brackets around an IPv6 host."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _read_text(path: str, what: str, advice: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(64 * 1024)
    except FileNotFoundError:
        raise UsageError(f"there is no {what} at {path}; {advice}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{what} {path} cannot be read: {error}") from None
