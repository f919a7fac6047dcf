"""What the public API says about types: checked, never run, against the sources and against the published stubs alone.

stubtest sees names and signatures, not whether the types in them are right.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import assert_type

import shunter
from shunter.plugins import Change, View


def double(x: int) -> int:
    """A task."""
    return 2 * x


def with_client(client: shunter.Client) -> None:
    """Futures carry the type of their result."""
    future = client.submit(double, 3)
    assert_type(future, shunter.Future[int])
    assert_type(future.result(), int)
    assert_type(future.key, str)
    assert_type(future.done(), bool)
    futures = client.map(double, [1, 2, 3])
    assert_type(futures, list[shunter.Future[int]])
    done, not_done = shunter.wait(futures)
    for one in shunter.as_completed(futures):
        one.result()
    assert len(done) + len(not_done) == len(futures)
    again = client.submit(double, 3, retries=shunter.Retry(2, on=OSError, delay=0.5, elsewhere=True))
    assert_type(again, shunter.Future[int])
    client.get({"a": shunter.Task(double, 1), "b": shunter.Task(double, shunter.Ref("a"))}, ["b"])
    client.retry(futures)
    client.fire_and_forget({"x": future})
    client.cancel(future, force=True)
    client.publish("d", futures, replace=True)
    client.get_dataset("d")
    assert_type(client.unpublish("d"), bool)
    assert_type(client.list_datasets(), list[str])
    assert_type(client.restart(timeout=3), int)
    assert_type(client.story(future), list[str])
    assert_type(client.why("key"), str)


async def with_async_client(client: shunter.AsyncClient) -> None:
    """The same, to await."""
    future = client.submit(double, 3)
    assert_type(await future, int)
    client.fire_and_forget(future)
    await client.publish("d", [future])
    assert_type(await client.unpublish("d"), bool)
    assert_type(await client.list_datasets(), list[str])
    assert_type(await client.restart(3.0), int)
    assert_type(await client.why(future), str)


def with_cluster() -> None:
    """A cluster tells where it is."""
    with shunter.LocalCluster(n_workers=1) as cluster, shunter.Client(cluster) as client:
        assert_type(cluster.address, str)
        assert_type(client, shunter.Client)


def with_error(error: shunter.RemoteError) -> str:
    """Errors carry fields."""
    assert_type(error.remote_traceback, str)
    return error.type_name


class Plugin(shunter.SchedulerPlugin):
    """Plugins see plain records."""

    def on_changes(self, changes: Sequence[Change], view: View) -> None:
        """See the base."""


assert_type(shunter.COMPILED, bool)
assert_type(shunter.__version__, str)
