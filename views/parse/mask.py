"""What quarantine shows of a value."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from views.parse.strict import let

MASKED_CHARACTERS = 120


def masked(value: Column) -> Column:
    """The first characters of `value`, with its structure and nothing of its content, in printable ASCII; empty for null.

    A letter becomes `x` and a digit `#`; a control character and anything else outside ASCII become a dot.
    """
    return F.coalesce(let(F.substring(value, 1, 4 * MASKED_CHARACTERS).cast("string"), _masked), F.lit(""))


def _masked(start: Column) -> Column:
    text = F.substring(F.make_valid_utf8(start), 1, MASKED_CHARACTERS)
    shape = F.regexp_replace(F.regexp_replace(text, r"\p{N}", "#"), r"[\p{L}\p{M}]", "x")
    return F.regexp_replace(shape, r"[^\x20-\x7e]", ".")
