"""Specs to and from text: `dropout.p=0.3` on a command line, and JSON in a file.

Both work on any frozen dataclass whose fields are numbers, words, tuples, dataclasses or None, so an
algorithm with a spec of its own needs nothing here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from mepg.errors import UsageError, unknown

S = TypeVar("S")
_hints: Callable[[type], dict[str, Any]] = functools.cache(get_type_hints)  # it parses annotations anew each time


def apply_settings(spec: S, settings: Iterable[str]) -> S:
    """The spec with each `field=value` set. Naming a field of a mechanism that is off turns it on."""
    changes: dict[str, Any] = {}  # as a tree: {"dropout": {"p": 0.3}, "hidden": (400, 300)}
    for setting in settings:
        path, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise UsageError(f"--set {setting!r}: write field=value, as in --set dropout.p=0.3")
        value = parse_value(type(spec), path, text)
        branch, (*mechanisms, name) = changes, path.split(".")
        for mechanism in mechanisms:
            if not isinstance(branch.get(mechanism), dict):
                branch[mechanism] = {}
            branch = branch[mechanism]
        branch[name] = value
    changed: S = _changed(spec, changes, path="")
    return changed


def parse_value(spec_class: type, path: str, text: str) -> Any:
    """What a text means as the value of a field, such as `dropout.p`, of a dataclass."""
    hint: object = spec_class
    names = path.split(".")
    for depth, name in enumerate(names):
        mechanism = _dataclass_in(hint)
        if mechanism is None:
            raise UsageError(f"--set {path}: {names[depth - 1]} is a plain value and has no fields")
        hints = _hints(mechanism)
        if name not in hints:
            prefix = "".join(f"{outer}." for outer in names[:depth])
            raise unknown("field", path, [prefix + known for known in _paths(mechanism)])
        hint = hints[name]
    return _parse(hint, text, path)


def to_json(spec: Any, *, defaults: bool = True) -> Any:
    """Plain dictionaries, lists, numbers, words and None.

    :param defaults: False: fields that have their default are left out
    """
    if is_dataclass(spec):
        return {
            field.name: to_json(getattr(spec, field.name), defaults=defaults)
            for field in fields(spec)
            if defaults or getattr(spec, field.name) != field.default
        }
    if isinstance(spec, tuple | list):
        return [to_json(value, defaults=defaults) for value in spec]
    return spec.item() if hasattr(spec, "item") else spec  # one of NumPy's scalars, which is not imported here


def from_json(spec_class: type[S], data: object) -> S:
    """The dataclass that `to_json` wrote. Anything else is refused, by name."""
    if not isinstance(data, dict):
        raise UsageError(f"a {spec_class.__name__} must be a JSON object, not {data!r}")
    hints = _hints(spec_class)
    for name in data:
        if name not in hints:
            raise unknown(f"field of {spec_class.__name__}", name, hints)
    return spec_class(**{name: _value_from_json(hints[name], value, name) for name, value in data.items()})


def digest(data: object) -> str:
    """A SHA-256 of JSON data: equal for equal data, whatever its order and layout."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def describe(spec: Any) -> dict[str, str]:
    """Every field as `--set` would take it, nested ones with a dot: {"dropout.p": "0.1", ...}."""
    lines: dict[str, str] = {}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if is_dataclass(value):
            lines |= {f"{field.name}.{name}": text for name, text in describe(value).items()}
        else:
            lines[field.name] = _to_text(value)
    return lines


def _to_text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ",".join(map(_to_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _changed(spec: Any, changes: Mapping[str, Any], path: str) -> Any:
    """`spec` with a tree of changes. `spec` may be a class: a mechanism that was off, with its defaults."""
    values: dict[str, Any] = {}
    spec_class = spec if isinstance(spec, type) else type(spec)
    hints = _hints(spec_class)
    for name, change in changes.items():
        if isinstance(change, dict):
            current = None if isinstance(spec, type) else getattr(spec, name)
            change = _changed(_dataclass_in(hints[name]) if current is None else current, change, f"{path}{name}.")
        values[name] = change
    try:
        return spec(**values) if isinstance(spec, type) else replace(spec, **values)
    except ValueError as error:
        raise UsageError(f"{path}{error}") from None
    except TypeError:
        missing = [f.name for f in fields(spec_class) if f.name not in values]
        raise UsageError(f"{path.rstrip('.')} is off: to turn it on, set {path}{missing[0]} too") from None


def _parse(hint: object, text: str, path: str) -> Any:
    options = _options(hint)
    if type(None) in options and text.lower() in ("none", "null", "off"):
        return None
    for option in options:
        try:
            return _parse_as(option, text)
        except (ValueError, KeyError):
            continue
    raise UsageError(f"{path} must be {_name(hint)}, not {text!r}")


def _parse_as(hint: object, text: str) -> Any:
    if get_origin(hint) is Literal:
        return {str(word): word for word in get_args(hint)}[text]
    if get_origin(hint) is tuple:
        members = [member for member in get_args(hint) if member is not Ellipsis]
        parts = text.split(",")
        if Ellipsis not in get_args(hint) and len(parts) != len(members):
            raise ValueError
        return tuple(_parse_as(members[min(i, len(members) - 1)], part) for i, part in enumerate(parts))
    if hint is bool:
        return {"true": True, "false": False}[text.lower()]
    if hint is int:
        return int(text.replace("_", ""))
    if hint is float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError
        return number
    raise ValueError


def _value_from_json(hint: object, value: object, name: str) -> Any:
    mechanism = _dataclass_in(hint)
    if isinstance(value, dict) and mechanism is not None:
        return from_json(mechanism, value)
    # Back through text: whatever the command line refuses, a file cannot bring in either.
    return _parse(hint, _to_text(tuple(value) if isinstance(value, list) else value), name)


def _options(hint: object) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _dataclass_in(hint: object) -> Any:
    return next((option for option in _options(hint) if is_dataclass(option)), None)


def _paths(spec_class: type) -> list[str]:
    """Every name that `--set` takes for this dataclass."""
    names: list[str] = []
    for name, hint in _hints(spec_class).items():
        mechanism = _dataclass_in(hint)
        names += [name] if mechanism is None else [name, *(f"{name}.{inner}" for inner in _paths(mechanism))]
    return names


def _name(hint: object) -> str:
    words = []
    for option in _options(hint):
        if option is type(None):
            words.append("none")
        elif get_origin(option) is Literal:
            words.append("one of " + ", ".join(map(str, get_args(option))))
        elif get_origin(option) is tuple:
            words.append("numbers separated by commas")
        elif is_dataclass(option):
            words.append("set by its fields (" + ", ".join(f.name for f in fields(option)) + ")")
        else:
            words.append({int: "a whole number", float: "a number", bool: "true or false"}.get(option, str(option)))
    return " or ".join(words)
