"""Batches against the machine's memory."""

from absl.testing import absltest, parameterized

from towers.data import room

_LARGE = 2**31 - 1


class RoomTest(parameterized.TestCase):
    def _check(self, *, batch=32, rounds=1, towers=4, **others):
        factors = dict(batch_size=batch, accumulate_steps=rounds, num_gpus=towers)
        room.check(factors, (8, 8, 1), **others)

    def test_what_fits(self):
        self._check()
        self._check(prefetch=1, memory=2 * 32 * 4 * 64 * 4)
        self._check(batch=2**29 - 1)  # for all that is known

    @parameterized.parameters(
        (dict(rounds=_LARGE), "accumulate_steps=2147483647: .* 274877906816 examples"),
        (dict(batch=2**29), "batch_size=536870912: a step would have 2147483648 ex"),
        (dict(batch=10**7), "batch_size=10000000: .* would take 20 GB, .* has 16 GB"),
        (dict(rounds=10**6), "accumulate_steps=1000000: .* would take 66 GB"),
        (dict(prefetch=_LARGE), "datasets_prefetch_buffer_size=2147483647: .* GB;"),
    )
    def test_refuses(self, settings, sentence):
        with self.assertRaisesRegex(ValueError, f"^--{sentence}"):
            self._check(**{"prefetch": 1, "memory": 16 * 10**9} | settings)

    def test_this_machine_has_some(self):
        self.assertGreater(room.of_machine(), 10**8)


if __name__ == "__main__":
    absltest.main()
