"""The natural order of keys: by name, then by number ("x-2" before "x-10").

It gives the tasks of a graph the ids by which `shunter.state.ordering` settles ties, so it may depend on
nothing but the keys: not on the order of insertion, not on hashing.

Each key becomes a *token*, a text that compares as the key should. A number in a text is written with the
count of its digits in front, so that longer numbers are larger: "x-2" becomes "x-12" and "x-10" becomes
"x-210" (roughly: see `number_token`). Different keys have different tokens. Texts compare at the speed of C,
and the beginnings of names, which keys share, are translated once.

Tokens are sorted in runs of `RUN`, then the runs are merged in pairs, bit by bit: one large sort would hold the
GIL for too long. Keys that come sorted make one long run, and there is nothing to merge.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

from shunter.state.names import Key

__all__ = ["KeyOrder"]

RUN: Final = 512  # keys that are sorted at once
STEMS: Final = 4096  # most beginnings of names that are remembered
DEPTH: Final = 4  # tuples nested deeper than this are not looked into
BULK: Final = 16  # keys that are copied or let go of at the price of one that is compared

Phase: TypeAlias = Literal["sort", "merge", "let-go", "done"]

DIGITS: Final = "0123456789"
ZERO: Final = 48
NINE: Final = 57
COUNTS: Final = ["0", "1", "2", "3", "4", "5", "6", "7", "8"]
# What a token begins with, by the type of its key. Smaller comes first.
NEGATIVE: Final = "a"
WHOLE: Final = "b"
TEXT: Final = "c"
TUPLE: Final = "d"
OTHER: Final = "e"
END: Final = "\0\0"  # ends a text or a tuple within a tuple; less than anything that can go on there
CODE_MAX: Final = 0x10FFFF
FALLING: Final = str.maketrans("0123456789abcdef", "fedcba9876543210")


@final
class KeyOrder:
    """Finds the natural order of keys. Advance it until it says True.

    Whole numbers come first, then text, then tuples, element by element. Other types, also within tuples,
    come last, by their place in ``picked``.

    Args:
        keys: read while advancing, never changed.
        picked: which of them to put in order, by their places in ``keys``: all different. None means all.

    Attributes:
        order: after finishing, places in ``picked``, the one of the first key first.
        left: what the last call left of its budget.
    """

    __slots__ = (
        "keys",
        "left",
        "litter",
        "merge",
        "merged",
        "order",
        "phase",
        "picked",
        "runs",
        "stems",
        "tokens",
    )

    def __init__(self, keys: list[Key], picked: list[int] | None = None) -> None:
        self.order: list[int] = []
        self.left = 0
        self.keys = keys
        self.picked = picked if picked is not None else list(range(len(keys)))
        self.phase: Phase = "sort"
        self.stems: dict[str, str] = {}
        self.tokens: list[str] = []
        self.runs: list[list[int]] = []  # sorted places in `picked`; a queue,
        self.merged = 0  # of which so many are behind us
        self.merge: Merge | None = None
        self.litter: list[list[int]] = []  # runs that are merged

    def advance(self, budget: int) -> bool:
        """Handle about ``budget`` keys more, `RUN` at least. True when finished."""
        while budget > 0 and self.phase != "done":
            if self.phase == "sort":
                budget -= self._sort_run()
            elif self.litter:
                budget = self._sweep(budget)
            elif self.phase == "merge":
                budget = self._merge_first_two(budget)
            else:
                budget = self._let_go(budget)
        self.left = budget
        return self.phase == "done"

    def _sort_run(self) -> int:
        """Sort the next keys. If they come after the last ones, they make one run with them."""
        tokens = self.tokens
        start = len(tokens)
        end = min(start + RUN, len(self.picked))
        for place in range(start, end):
            tokens.append(token_of(self.keys[self.picked[place]], place, self.stems))
        run = sorted(range(start, end), key=tokens.__getitem__)
        if self.runs and tokens[self.runs[-1][-1]] < tokens[run[0]]:
            self.runs[-1].extend(run)
        else:
            self.runs.append(run)
        if end == len(self.picked):
            self.phase = "merge"
        return end - start

    def _merge_first_two(self, budget: int) -> int:
        if self.merged + 1 == len(self.runs):
            self.order = self.runs.pop()  # The one that is left.
            self.phase = "let-go"
            return budget
        if self.merge is None:
            left = self.runs[self.merged]
            right = self.runs[self.merged + 1]
            self.merge = Merge(self.tokens, left, right)
        budget = self.merge.advance(budget)
        if self.merge.is_finished():
            for run in (self.merged, self.merged + 1):
                self.litter.append(self.runs[run])
                self.runs[run] = []
            self.merged += 2
            self.runs.append(self.merge.out)
            self.merge = None
        return budget

    def _sweep(self, budget: int) -> int:
        """It takes milliseconds to free a hundred thousand numbers or texts: that is done bit by bit, too."""
        numbers = self.litter[-1]
        count = min(len(numbers), budget * BULK)
        del numbers[len(numbers) - count :]
        if not numbers:
            self.litter.pop()
        return budget - count // BULK

    def _let_go(self, budget: int) -> int:
        tokens = self.tokens
        count = min(len(tokens), budget * BULK)
        del tokens[len(tokens) - count :]
        if not tokens:
            self.phase = "done"
        return budget - count // BULK


@final
class Merge:
    """Two sorted runs become one, ``out``."""

    __slots__ = ("left", "left_at", "out", "right", "right_at", "tokens")

    def __init__(self, tokens: list[str], left: list[int], right: list[int]) -> None:
        self.tokens = tokens
        self.left = left
        self.left_at = 0
        self.right = right
        self.right_at = 0
        self.out: list[int] = []

    def is_finished(self) -> bool:
        return len(self.out) == len(self.left) + len(self.right)

    def advance(self, budget: int) -> int:
        """Place about ``budget`` keys; return what is left of it."""
        budget = self._compare(budget)
        if self.right_at == len(self.right):
            part = self.left[self.left_at : self.left_at + budget * BULK]
            self.left_at += len(part)
        elif self.left_at == len(self.left):
            part = self.right[self.right_at : self.right_at + budget * BULK]
            self.right_at += len(part)
        else:
            return 0
        self.out.extend(part)
        return budget - (len(part) + BULK - 1) // BULK

    def _compare(self, budget: int) -> int:
        tokens = self.tokens
        left = self.left
        right = self.right
        out = self.out
        i = self.left_at
        j = self.right_at
        if i < len(left) and j < len(right):
            a = tokens[left[i]]
            b = tokens[right[j]]
            while budget > 0:
                budget -= 1
                if a < b:
                    out.append(left[i])
                    i += 1
                    if i == len(left):
                        break
                    a = tokens[left[i]]
                else:
                    out.append(right[j])
                    j += 1
                    if j == len(right):
                        break
                    b = tokens[right[j]]
        self.left_at = i
        self.right_at = j
        return budget


# ---------------------------------------------------------------------------------------------- tokens


def token_of(key: object, place: int, stems: dict[str, str]) -> str:
    """A text that compares as the key should. ``stems`` remembers beginnings of names from call to call."""
    if isinstance(key, str):
        return TEXT + text_token(key, stems)
    if isinstance(key, int):
        return whole_token(int(key))
    if isinstance(key, tuple):
        return tuple_token(key, place, stems, DEPTH)
    return other_token(place)


def text_token(text: str, stems: dict[str, str]) -> str:
    stem = text.rstrip(DIGITS)
    token = stems.get(stem)
    if token is None:
        token = stem_token(stem)
        if len(stems) < STEMS:
            stems[stem] = token
    if len(stem) == len(text):
        return token
    return token + number_token(text[len(stem) :])


def stem_token(stem: str) -> str:
    """A text with numbers anywhere but at its end."""
    parts: list[str] = []
    copied = 0  # what stands before is in `parts`
    digits = 0  # how many stand directly before `place`
    for place in range(len(stem)):
        if ZERO <= ord(stem[place]) <= NINE:
            digits += 1
        elif digits > 0:
            parts.append(stem[copied : place - digits])
            parts.append(number_token(stem[place - digits : place]))
            copied = place
            digits = 0
    parts.append(stem[copied:])
    return "".join(parts)


def number_token(digits: str) -> str:
    """A number in a text: the count of its digits, the digits, and how many zeros stood in front, as a code.

    Up to 8 digits the count is one digit; with more it is a 9 and a code. The text around has no digits in its
    token: a digit there always begins a number, so different texts have different tokens.
    """
    if len(digits) < 9 and not digits.startswith("0"):
        return COUNTS[len(digits)] + digits + "\0"  # nearly always
    significant = digits.lstrip("0")
    count = len(significant)
    zeros = len(digits) - count
    front = COUNTS[count] if count < 9 else "9" + chr(min(count, CODE_MAX))
    return front + significant + chr(min(zeros, CODE_MAX))


def whole_token(number: int) -> str:
    """Hexadecimal, because Python limits the length of decimal numbers."""
    if number >= 0:
        digits = f"{number:x}"
        return WHOLE + chr(min(len(digits), CODE_MAX)) + digits
    digits = f"{-number:x}"
    return NEGATIVE + chr(CODE_MAX - min(len(digits), CODE_MAX)) + digits.translate(FALLING)


def tuple_token(key: tuple[object, ...], place: int, stems: dict[str, str], depth: int) -> str:
    parts = [TUPLE]
    for item in key:
        if isinstance(item, str):
            parts.append(TEXT)
            parts.append(text_token(item.replace("\0", "\0\1"), stems))
            parts.append(END)
        elif isinstance(item, int):
            parts.append(whole_token(int(item)))
        elif isinstance(item, tuple) and depth > 0:
            parts.append(tuple_token(item, place, stems, depth - 1))
        else:
            parts.append(other_token(place))
    parts.append(END)
    return "".join(parts)


def other_token(place: int) -> str:
    return f"{OTHER}{place:016x}"
