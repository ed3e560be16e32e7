"""The types of fields are checked."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from absl.testing import parameterized

from models import user_errors, validation


@dataclasses.dataclass(frozen=True)
class _Part:
    size: int = 1


@dataclasses.dataclass(frozen=True)
class _Whole:
    count: int = 1
    rate: float = 0.5
    name: str = "n"
    shape: tuple[int, int] = (1, 2)
    rates: tuple[float, ...] = ()
    pairs: Sequence[tuple[str, Callable[[int], int]]] = ()
    act: Callable[[], None] = print
    part: _Part | int = 0

    def __post_init__(self):
        validation.check(
            self,
            count=validation.COUNT,
            rates=validation.EPOCHS,
            rate=validation.BELOW_1,
            name=validation.one_of("nm"),
        )


class CheckTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(count=np.int64(3)),
        dict(rate=0),
        dict(rate=np.float32(0.25)),
        dict(shape=[3, 4]),
        dict(rates=(1, 2.5)),
        dict(pairs=[("a", len), ["b", len]]),
        dict(part=_Part()),
    )
    def test_fits(self, **fields):
        [(name, value)] = fields.items()
        self.assertIs(getattr(_Whole(**fields), name), value)

    @parameterized.parameters(
        (dict(count="3"), "count is '3', and must be a whole number"),
        (dict(count=True), "count is True, and must be a whole number"),
        (dict(count=1.0), "count is 1.0, and must be a whole number"),
        (dict(count=None), "count is None, and must be a whole number"),
        (dict(count=0), "count is 0, and must be at least 1"),
        (dict(rate="0.1"), "rate is '0.1', and must be a finite float32"),
        (dict(rate=float("nan")), "rate is nan, and must be a finite float32"),
        (dict(rate=1e300), "rate is 1e.300, and must be a finite float32"),
        (dict(rate=1), "rate is 1, and must be at least 0 and below 1"),
        (dict(name=b"n"), "name is b'n', and must be a text"),
        (dict(name="p"), "name is 'p', and must be one of n, m$"),
        (dict(shape=(1,)), r"shape is \(1,\), .* \(a whole number, a whole number\)"),
        (dict(shape="12"), "shape is '12', and must be"),
        (dict(rates=0.1), r"rates is 0.1, and must be \(a finite float32, ...\)"),
        (dict(rates=(0.1, 0.0)), r"rates is \(0.1, 0.0\), and must be above 0"),
        (
            dict(pairs=[len]),
            r"pairs is .*, and must be \(\(a text, a function\), ...\)",
        ),
        (dict(pairs=[("a", 3)]), "pairs is .*, and must be"),
        (dict(act=3), "act is 3, and must be a function"),
        (dict(part=None), "part is None, and must be _Part or a whole number"),
    )
    def test_refuses(self, fields, sentence):
        with self.assertRaisesRegex(ValueError, f"^_Whole.{sentence}"):
            _Whole(**fields)


class ValidationTest(parameterized.TestCase):
    @parameterized.parameters(
        lambda x, nn: 0,
        lambda *args, **settings: 0,
        lambda x, nn, more=1, *, size=3: 0,
        max,
        functools.wraps(len)(lambda x, nn: 0),
    )
    def test_takes(self, function):
        validation.check_takes("it", function, "x", "nn")

    @parameterized.parameters(
        (lambda x: 0, "it must take .x, nn.: too many positional arguments"),
        (lambda x, nn, z: 0, "it must take .x, nn.: missing .*'z'"),
        (lambda x, nn, *, z: 0, "it must take .x, nn.: missing .*'z'"),
        (_Part, "it must take .x, nn.: too many positional arguments"),
    )
    def test_does_not(self, function, sentence):
        with self.assertRaisesRegex(user_errors.SignatureError, f"^{sentence}"):
            validation.check_takes("it", function, "x", "nn")

    def test_by_name(self):
        validation.check_takes("it", _Part, size=5)
        with self.assertRaisesRegex(ValueError, r"^it must take \(sizes=\): .*'sizes'"):
            validation.check_takes("it", _Part, sizes=5)
