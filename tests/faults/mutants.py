"""Files as they come out of a bad disk, a bad cable, or the hands of someone who means harm."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

# What parsers stumble over: limits, empty things, other types, other languages, paths, code, and terabytes.
STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**53, 2**63, 2**64, 10**30, -(10**30), 0.0, -0.0, 0.5, 1e-320, 1e308,
    float("nan"), float("inf"), -float("inf"), "", "x", "none", "nan", "1e999", "0x10", "true", "1_0", "٣", "²", "\x00",
    "\ud800", "a" * 5_000, "9" * 5_000, "../../etc/passwd", "/etc/passwd", "os:system", "__import__('os')", "<script>",
    [], [[]], [0], ["x"], [None], [10**12, 10**12], [1] * 100, {}, {"x": 1}, {"sha256": "x"}, {"__metadata__": {}},
]  # fmt: skip


def of_bytes(content: bytes, rng: random.Random) -> bytes:
    """Bits flipped, bytes changed, pieces cut, doubled, moved, or put in from nowhere: one to three such things."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        length = min(len(data) - at, rng.choice((1, 2, 8, 64, 1024)))
        match rng.randrange(8):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.choice((0, 255, 127, 128, rng.randrange(256), *b'0919-+.e"{}[],:/'))
            case 2:
                del data[at:]
            case 3:
                del data[at : at + length]
            case 4:
                data[at:at] = data[at : at + length]
            case 5:
                data[at:at] = rng.randbytes(length)
            case 6:
                to = rng.randrange(len(data) + 1)
                data[to : to + length] = data[at : at + length]
            case 7:  # a number in a header that claims a terabyte, or less than nothing
                data[at : at + 8] = rng.choice((2**40, 2**63, 2**64 - 1, 0)).to_bytes(8, rng.choice(("little", "big")))
    return bytes(data)


def of_json(data: Any, rng: random.Random) -> Any:
    """One to three values, keys or items changed, somewhere inside."""
    data = json.loads(json.dumps(data))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice(list(_places(data)) or [(None, None)])
        if holder is None:
            return copy.deepcopy(rng.choice(STRANGE))
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[rng.choice(("", "x", "sha256", "\x00", "__class__", key + "x"))] = holder.pop(key)
            case 2 if isinstance(holder, list):
                holder[key:key] = [holder[key]] * rng.choice((1, 2, 50))
            case 3 if type(holder[key]) in (int, float):
                holder[key] = rng.choice((-holder[key], holder[key] + 1, holder[key] * 10**9, str(holder[key])))
            case 4 if isinstance(holder[key], str) and holder[key]:
                text = list(holder[key])
                text[rng.randrange(len(text))] = rng.choice(("", "é", "0", "/", ":", "\n", "<"))
                holder[key] = "".join(text)
            case _:
                holder[key] = copy.deepcopy(rng.choice(STRANGE))  # which the next round may change
    return data


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from _places(data[key])


def of_text(text: str, rng: random.Random) -> str:
    """A setting with another name, value or shape."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(5):
            case 0:
                text = text[:at] + rng.choice("=.,-_+eE019 \x00\ud800é²٣∞'\"\\%{}[]()") + text[at:]
            case 1:
                text = text[:at] + text[at + rng.choice((1, 3)) :]
            case 2:
                text = text.partition("=")[0] + "=" + str(rng.choice(STRANGE))
            case 3:
                text = str(rng.choice(STRANGE)) + "=" + text.partition("=")[2]
            case 4:
                text = text + rng.choice((text, "," + text, "." + text, "=" + text))
    return text
