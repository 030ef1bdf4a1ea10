"""The strict parse: one delivery's bytes to an event's fields, or to the reason why they are none.

Everything is one Spark expression without Python in it, so both layers and every executor judge alike, and nothing in
it throws for any bytes, as that would stop the stream. Spark's JSON readers are more lenient than RFC 8259. So reading
and proving are apart: `from_json` reads every text (`fields`); then a few cheap facts about the text show that it was
strict (`proof`: nearly always), or a second, strict reading decides (`strict`). Only this package and `views.lift`
import pyspark.
"""

from views.parse.steps import parse

__all__ = ["parse"]
