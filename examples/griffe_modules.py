"""What Griffe has to know of this package to write its reference.

Griffe reads the source without running it, and knows that `dataclass` writes an `__init__` from
fields. `equinox.Module` and `NamedTuple` do the same, which it does not know: here they are marked
as data classes, the defaults in `eqx.field(...)` become those of their parameters, and a comment
beside a field is its description, if it has no other.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import griffe

_DATACLASS = griffe.Decorator(griffe.ExprName("dataclasses.dataclass"), lineno=0, endlineno=0)
_BASES = {"equinox.Module", "typing.NamedTuple"}


class Fields(griffe.Extension):
    """Run on the whole package, before Griffe's own extension for data classes."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Mark all classes of a package that are made of fields."""
        del kwargs
        for found in list(_classes(pkg)):
            own = [a for a in found.attributes.values() if not a.is_alias]
            for attribute in own:
                _describe(attribute, found)
            if not _has_fields(found):
                continue
            for attribute in own:
                attribute.value = _default(attribute.value)
                if str(attribute.annotation).startswith("eqx.AbstractVar"):
                    attribute.labels -= {"instance-attribute"}  # no parameter
                    attribute.labels |= {"class-attribute"}
            if not _has_init(found):
                found.decorators.append(_DATACLASS)


def _classes(room: griffe.Module) -> Iterator[griffe.Class]:
    for member in room.members.values():
        if isinstance(member, griffe.Module):
            yield from _classes(member)
        elif isinstance(member, griffe.Class):
            yield member


def _parents(found: griffe.Class) -> list[griffe.Class]:
    targets = (base.final_target if base.is_alias else base for base in found.resolved_bases)  # pyright: ignore[reportAttributeAccessIssue]
    return [base for base in targets if isinstance(base, griffe.Class)]


def _has_fields(found: griffe.Class) -> bool:
    paths = {getattr(base, "canonical_path", str(base)) for base in found.bases}
    return bool(paths & _BASES) or any(_has_fields(base) for base in _parents(found))


def _has_init(found: griffe.Class) -> bool:
    return "__init__" in found.members or any(_has_init(base) for base in _parents(found))


def described(found: griffe.Class) -> set[str]:
    """Names that the docstring of a class, or of one of its parents, speaks of."""
    names = set().union(*(described(base) for base in _parents(found)))
    if found.docstring is not None:
        for section in found.docstring.parse("google", warnings=False):
            if section.kind.value in ("attributes", "parameters"):
                names |= {item.name for item in section.value}
    return names


def _describe(attribute: griffe.Attribute, found: griffe.Class) -> None:
    """By the comment in the class, or in one of its parents."""
    name = attribute.name
    if attribute.has_docstring or name.startswith("_") or name in described(found):
        return
    comment = _comment(name, found)
    if comment is not None:
        attribute.docstring = griffe.Docstring(comment, parent=attribute)


def _comment(name: str, found: griffe.Class) -> str | None:
    """At the end of the line of a field, or on the line above it."""
    lines = found.lines_collection[found.filepath][(found.lineno or 1) - 1 : found.endlineno]
    for above, line in itertools.pairwise(lines):
        if re.match(rf"    {name}\s*:", line):
            beside = line.partition("  # ")[2]
            if beside or above.startswith("    # "):
                return (beside or above[6:]).strip()
    return next((c for c in (_comment(name, base) for base in _parents(found)) if c), None)


def _default(value: Any) -> Any:
    """What `eqx.field(default=..., ...)` stands for."""
    call = value.last if isinstance(value, griffe.ExprAttribute) else value
    if not isinstance(call, griffe.ExprCall) or call.canonical_path != "equinox.field":
        return value
    given = {getattr(a, "name", None): getattr(a, "value", None) for a in call.arguments}
    return given.get("default")
