"""Function blobs are kept once, and only while somebody refers to them."""

from __future__ import annotations

import gc

import pytest

from shunter import serialize
from shunter.errors import PeerError
from shunter.server.functions import Functions, digest_of


def test_digest__is_the_one_that_clients_compute() -> None:
    assert digest_of(b"some function") == serialize.digest(b"some function")


def test_same_blob_twice__is_one_function() -> None:
    table = Functions()
    a = table.intern(digest_of(b"f"), "inc", b"f")
    b = table.intern(digest_of(b"f"), "plus_one", b"f")
    assert a is b
    assert a.name == "inc"
    assert len(table) == 1


def test_other_blobs__get_other_numbers() -> None:
    table = Functions()
    a, b = (table.intern(digest_of(blob), "f", blob) for blob in (b"f", b"g"))
    assert a.number != b.number
    assert table.find(a.number) is a
    assert table.find(b.number) is b


def test_digest_of_another_blob__is_an_error_of_the_peer() -> None:
    table = Functions()
    kept = table.intern(digest_of(b"good"), "good", b"good")
    with pytest.raises(PeerError, match="does not belong"):
        table.intern(kept.digest, "evil", b"evil")
    assert kept.blob == b"good"


def test_last_reference_gone__frees_the_blob_and_never_reuses_the_number() -> None:
    table = Functions()
    spec = (table.intern(digest_of(b"f"), "f", b"f"), b"arguments")
    number = spec[0].number
    del spec
    gc.collect()
    assert len(table) == 0
    assert table.find(number) is None
    assert table.intern(digest_of(b"f"), "f", b"f").number > number
