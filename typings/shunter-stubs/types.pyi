# Generated from the sources by typings/generate.py: do not edit. To refresh: tox -e fresh
from mmap import mmap
from typing import TypeAlias, Union

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap

JSON: TypeAlias = Union[bool, int, float, str, 'list[JSON]', 'dict[str, JSON]', None]

class Retry:
    n: int
    on: tuple[type[BaseException], ...] | None
    delay: float
    elsewhere: bool
    def __init__(self, n: int, *, on: type[BaseException] | tuple[type[BaseException], ...] | None = None, delay: float = 0.0, elsewhere: bool = False) -> None: ...
    def on_names(self) -> list[str] | None: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
