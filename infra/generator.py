"""Made-up transactions: event i of a tape is a pure function of the tape and of i.

So any slice can be made again, in any order and on any machine, without the slices before it. Random bits come from
a counter (SplitMix64), not from a sequence. Knows nothing of Kafka; what is sent, and how often, is `infra.deliveries`'.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serving.errors import BadRequest

MERCHANTS = 10_000
ACCOUNTS = 100_000
LATE_BY_AT_MOST = timedelta(hours=26)

Bits = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

_ZIPF_EXPONENT = 1.1
_CURRENCIES = ("EUR",) * 8 + ("USD",) * 5 + ("GBP", "CHF", "SEK")
_KINDS = ("purchase",) * 28 + ("refund",) * 2 + ("transfer",) * 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000
_LANES = 16
"""Independent draws of 64 bits per event."""


class EncodedEvents(NamedTuple):
    values: list[bytes]
    """One JSON object each, about 200 bytes."""
    keys: list[bytes]


@dataclass(frozen=True, slots=True)
class Tape:
    """An endless sequence of events. All fields take part in every event's identity, so two tapes share no id."""

    seed: int
    start: datetime
    gap: timedelta
    """Event time between one event and the next, before jitter and lateness."""
    late: float = 0.0
    """Share of events whose event time lies up to 26 hours further back."""

    def __post_init__(self) -> None:
        if self.gap < timedelta(microseconds=1):
            raise BadRequest(f"events {self.gap} apart.", fix="Give them a longer span: --span.")
        if not 2001 <= self.start.year <= 2098:
            raise BadRequest(f"a tape that starts {self.start:%Y-%m-%d}.", fix="Event days lie between 2001 and 2098: --day 2026-03-01.")

    @property
    def start_us(self) -> int:
        return (self.start - _EPOCH) // timedelta(microseconds=1)

    @property
    def gap_us(self) -> int:
        return self.gap // timedelta(microseconds=1)

    @property
    def counter_key(self) -> int:
        text = f"{self.seed} {self.start_us} {self.gap_us} {self.late!r}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def bits_at(tape: Tape, indices: Bits, lane: int) -> Bits:
    """64 random bits for each index: SplitMix64's finaliser over a counter."""
    mixed: Bits = (indices * np.uint64(_LANES) + np.uint64(lane + 1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(tape.counter_key)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def chosen(bits: Bits, share: float) -> NDArray[np.bool_]:
    """True for about `share` of the draws."""
    return (bits >> np.uint64(11)) < np.uint64(int(share * (1 << 53)))


def events_at(tape: Tape, indices: Bits) -> EncodedEvents:
    """The events with these numbers, as they are sent."""
    head = _encode_heads(tape, indices)
    width = head.shape[1]
    heads = head.tobytes()
    keys = np.ascontiguousarray(head[:, _ACCOUNT_AT : _ACCOUNT_AT + _ACCOUNT_WIDTH]).tobytes()
    amounts, tails = _encode_tails(tape, indices)
    values = [
        heads[row * width : row * width + width] + b"%d" % amount + tail
        for row, (amount, tail) in enumerate(zip(amounts, tails, strict=True))
    ]
    return EncodedEvents(values, [keys[at : at + _ACCOUNT_WIDTH] for at in range(0, len(keys), _ACCOUNT_WIDTH)])


# The part of an event before the amount has one width, so it is written for all events at once, column by column.
_PARTS = (
    ('{"transaction_id":"', 36),
    ('","event_time":"', 27),
    ('","account_id":"acct-', 6),
    ('","merchant_id":"shop-', 5),
    ('","amount_cents":', 0),
)
_HEAD_WIDTH = sum(len(text) + width for text, width in _PARTS)
_STARTS = [sum(len(text) + width for text, width in _PARTS[:part]) + len(_PARTS[part][0]) for part in range(len(_PARTS))]
_ID_AT, _TIME_AT, _ACCOUNT_DIGITS_AT, _MERCHANT_DIGITS_AT, _ = _STARTS
_ACCOUNT_AT = _ACCOUNT_DIGITS_AT - len("acct-")
_ACCOUNT_WIDTH = len("acct-") + 6
_TEMPLATE = np.frombuffer("".join(text + "0" * width for text, width in _PARTS).encode(), dtype=np.uint8)
_TAILS = {(currency, kind): f',"currency":"{currency}","kind":"{kind}"}}'.encode() for currency in _CURRENCIES for kind in _KINDS}


def _encode_heads(tape: Tape, indices: Bits) -> Bytes:
    head = np.tile(_TEMPLATE, (len(indices), 1))
    head[:, _ID_AT : _ID_AT + 36] = _uuids(bits_at(tape, indices, 0), bits_at(tape, indices, 1))
    head[:, _TIME_AT : _TIME_AT + 27] = _instants(_event_times(tape, indices))
    accounts = _zipf(bits_at(tape, indices, 5), ACCOUNTS)
    head[:, _ACCOUNT_DIGITS_AT : _ACCOUNT_DIGITS_AT + 6] = _digits(accounts, 6)
    merchants = _zipf(bits_at(tape, indices, 6), MERCHANTS)
    head[:, _MERCHANT_DIGITS_AT : _MERCHANT_DIGITS_AT + 5] = _digits(merchants, 5)
    return head


def _encode_tails(tape: Tape, indices: Bits) -> tuple[list[int], list[bytes]]:
    """Amounts from a cent to 10,000 of a currency, refunds below zero; and what follows the amount."""
    draws = bits_at(tape, indices, 7)
    currencies = (draws & np.uint64(15)).astype(np.intp)
    kinds = ((draws >> np.uint64(4)) & np.uint64(31)).astype(np.intp)
    magnitudes = np.array([1_000, 10_000, 10_000, 1_000_000], dtype=np.uint64)[((draws >> np.uint64(9)) & np.uint64(3)).astype(np.intp)]
    amounts = (bits_at(tape, indices, 8) % magnitudes).astype(np.int64) + 1
    refunds = np.array([kind == "refund" for kind in _KINDS])[kinds]
    tails = [_TAILS[_CURRENCIES[currency], _KINDS[kind]] for currency, kind in zip(currencies.tolist(), kinds.tolist(), strict=True)]
    signed: list[int] = np.where(refunds, -amounts, amounts).tolist()
    return signed, tails


def _event_times(tape: Tape, indices: Bits) -> NDArray[np.int64]:
    """Microseconds since 1970: along the tape, most within 2 s of order, some within a minute, the late ones up to 26 h."""
    draws = bits_at(tape, indices, 2)
    jitter = np.where(draws % np.uint64(10) < np.uint64(9), draws % np.uint64(2_000_003), draws % np.uint64(60_000_011)).astype(np.int64)
    along = indices.astype(np.int64) * tape.gap_us
    on_time = tape.start_us + np.maximum(along - jitter, 0)
    late_by = (bits_at(tape, indices, 3) % np.uint64(LATE_BY_AT_MOST // timedelta(microseconds=1))).astype(np.int64)
    return np.where(chosen(bits_at(tape, indices, 4), tape.late), tape.start_us + along - late_by, on_time)


@cache
def _zipf_edges(count: int) -> Bits:
    """Where, of 2^53, each rank's share of the draws ends."""
    shares = np.arange(1, count + 1, dtype=np.float64) ** -_ZIPF_EXPONENT
    edges: Bits = np.round(np.cumsum(shares) / shares.sum() * (1 << 53)).astype(np.uint64)
    return edges


def _zipf(bits: Bits, count: int) -> Bits:
    """A rank for each draw; 1 is the most frequent."""
    return np.searchsorted(_zipf_edges(count), bits >> np.uint64(11), side="right").astype(np.uint64) + np.uint64(1)


def _digits(numbers: Bits, width: int) -> Bytes:
    powers = np.array([10**place for place in range(width - 1, -1, -1)], dtype=np.uint32)
    return (numbers.astype(np.uint32)[:, None] // powers % np.uint32(10) + np.uint32(48)).astype(np.uint8)


def _uuids(high: Bits, low: Bits) -> Bytes:
    """36 characters each, as of a random (version 4) UUID."""
    octets = np.stack([high.astype(">u8"), low.astype(">u8")], axis=1).view(np.uint8)
    octets[:, 6] = octets[:, 6] & 0x0F | 0x40
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80
    nibbles = np.stack([octets >> 4, octets & 15], axis=2).reshape(len(high), 32)
    characters = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[nibbles]
    text = np.full((len(high), 36), ord("-"), dtype=np.uint8)
    for source, target, length in ((0, 0, 8), (8, 9, 4), (12, 14, 4), (16, 19, 4), (20, 24, 12)):
        text[:, target : target + length] = characters[:, source : source + length]
    return text


def _instants(times_us: NDArray[np.int64]) -> Bytes:
    """RFC 3339 in UTC with six fraction digits: 27 characters each."""
    days, of_day_us = np.divmod(times_us, _DAY_US)
    distinct, which = np.unique(days, return_inverse=True)
    dates = np.datetime_as_string(distinct.astype("datetime64[D]")).astype("S10")
    text = np.tile(np.frombuffer(b"0000-00-00T00:00:00.000000Z", dtype=np.uint8), (len(times_us), 1))
    text[:, :10] = dates.view(np.uint8).reshape(-1, 10)[which]
    seconds, fraction = np.divmod(of_day_us, 1_000_000)
    text[:, 11:13] = _digits((seconds // 3600).astype(np.uint64), 2)
    text[:, 14:16] = _digits((seconds // 60 % 60).astype(np.uint64), 2)
    text[:, 17:19] = _digits((seconds % 60).astype(np.uint64), 2)
    text[:, 20:26] = _digits(fraction.astype(np.uint64), 6)
    return text
