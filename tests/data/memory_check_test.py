"""Batches that do not fit into memory are refused."""

from absl.testing import parameterized

from towers.data import memory_check
from towers.errors.memory_limits import Limit

_LARGE = 2**31 - 1


def _limit(size: int) -> Limit:
    return Limit("x", size, 0)


class MemoryCheckTest(parameterized.TestCase):
    def _check(self, *, batch=32, rounds=1, towers=4, **others):
        factors = dict(batch_size=batch, accumulate_steps=rounds, num_gpus=towers)
        memory_check.check(factors, 4 * 8 * 8, **others)

    def test_what_fits(self):
        self._check()
        just = 2 * 32 * 4 * 64 * 4
        self._check(prefetch=1, limits=[_limit(just)])
        with self.assertRaises(ValueError):
            self._check(prefetch=1, limits=[_limit(2 * just), _limit(just - 1)])
        self._check(batch=2**29 - 1)  # nothing is known to be too large

    @parameterized.parameters(
        (dict(rounds=_LARGE), "accumulate_steps=2147483647: .* 274877906816 examples"),
        (dict(batch=2**29), "batch_size=536870912: a step would have 2147483648 ex"),
        (
            dict(batch=10**7),
            "batch_size=10000000: .* would take 20.5 GB, and x leaves 16.0 GB",
        ),
        (dict(rounds=10**6), "accumulate_steps=1000000: .* would take 65.5 GB"),
        (dict(prefetch=_LARGE), "datasets_prefetch_buffer_size=2147483647: .* GB;"),
    )
    def test_refuses(self, settings, sentence):
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            self._check(**{"prefetch": 1, "limits": [_limit(16 * 10**9)]} | settings)
