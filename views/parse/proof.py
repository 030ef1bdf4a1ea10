"""Cheap facts that prove a text strict after the lenient reader gave every field from it.

The reader gave one value with all fields, and the text is UTF-8. It is one strict RFC 8259 object of the right types if also

1. it holds no `]`: so the value ends where our own bracket stands, and nothing follows it;
2. it holds no backslash: so every quote begins or ends a string, a string is its own bytes, and no escape can write U+0000
   or half a surrogate pair;
3. no name comes twice: either the text is too short for a repeated name beside the fields, or its quotes are as many as
   those of the names and strings of the fields, so that no further name has room;
4. each text field's name is followed by a colon and a quote somewhere, and no text field reads as if it began with a
   brace: so, by 2 and 3, the field is a string, and not a number or an object that the reader rendered as text. (Other
   fields cannot be mistaken: no other JSON type reads like an instant or a code.)

A text of which this is not so may still be an event: the strict reading decides.
"""

from __future__ import annotations

from functools import reduce
from operator import add, and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from views.event import EVENT_FIELDS, SCHEMA_VERSIONS, FieldKind

_NAMES = [field.name for field in EVENT_FIELDS]
_TEXTS = [field.name for field in EVENT_FIELDS if field.kind is FieldKind.TEXT]
_STRINGS = [field.name for field in EVENT_FIELDS if field.kind is not FieldKind.INTEGER]

_QUOTES = 2 * len(_NAMES) + 2 * len(_STRINGS)
_PUNCTUATION = len("{}") + sum(len(f'"{name}":') for name in _NAMES) + len(_NAMES) - 1 + 2 * len(_STRINGS)
_SCHEMA_QUOTES = 2
_SCHEMA_LENGTH = len('"schema":1,')
_SHORTEST_REPEAT = min(len(f'"{name}":0,') for name in _NAMES)
"""Two equal names that are no field's would need ten bytes or more: `"":0,"":0,`."""


def proven(text: Column) -> Column:
    """True only where `text` is one strict object with fields of the right JSON types; never null."""
    complete = reduce(and_, (F.col(name).isNotNull() for name in _NAMES))
    facts = (F.col("values_read") == 1) & complete & ~text.contains("]") & ~text.contains("\\") & _known_schema(text)
    strings = reduce(and_, (_was_string(name, text) for name in _TEXTS))
    return F.coalesce(facts & strings & _no_name_twice(text), F.lit(False))


def _known_schema(text: Column) -> Column:
    """By 3 a `schema` of null, which the reader gives like none, has no room either."""
    spellings = [f'"schema":{space}{version}{end}' for version in SCHEMA_VERSIONS for space in ("", " ") for end in ",}"]
    return F.col("given_schema").isNull() | reduce(or_, (text.contains(spelling) for spelling in spellings))


def _was_string(name: str, text: Column) -> Column:
    member_is_string = text.contains(f'"{name}":"') | text.contains(f'"{name}": "')
    return member_is_string & ~F.col(f"given_{name}").startswith("{")


def _no_name_twice(text: Column) -> Column:
    with_schema = F.col("given_schema").isNotNull()
    values = reduce(add, (F.octet_length(F.col(f"given_{name}").cast("string")) for name in _NAMES))
    spare = F.octet_length(text) - values - _PUNCTUATION - F.when(with_schema, _SCHEMA_LENGTH).otherwise(0)
    quotes = F.octet_length(text) - F.octet_length(F.replace(text, F.lit('"'), F.lit("")))
    return (spare < _SHORTEST_REPEAT) | (quotes == _QUOTES + F.when(with_schema, _SCHEMA_QUOTES).otherwise(0))
