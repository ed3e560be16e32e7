"""The grammar of --all_reduce_spec: its meaning and its errors."""

import random
import re

from absl.testing import parameterized

from towers.gradients import spec

_NAMES = ("pscpu", "psgpu", "xring", "nccl", "rechd", "tree")
_A = spec.SpecAlgorithm


class SpecTest(parameterized.TestCase):
    @parameterized.parameters(
        ("xring", [(None, _A("xring"), None)]),
        ("xring#2", [(None, _A("xring", 2), None)]),
        ("nccl/pscpu", [(None, _A("nccl"), _A("pscpu"))]),
        ("nccl/psgpu#4", [(None, _A("nccl"), _A("psgpu", 4))]),
        ("pscpu:32k:xring", [(32768, _A("pscpu"), None), (None, _A("xring"), None)]),
        (
            "pscpu:8:tree:1M:nccl/rechd#3",
            [
                (8, _A("pscpu"), None),
                (2**20, _A("tree"), None),
                (None, _A("nccl"), _A("rechd", 3)),
            ],
        ),
        (
            "pscpu:2K:tree:1G:xring:1T:nccl",
            [
                (2**11, _A("pscpu"), None),
                (2**30, _A("tree"), None),
                (2**40, _A("xring"), None),
                (None, _A("nccl"), None),
            ],
        ),
    )
    def test_specs(self, text, wanted):
        parsed = spec.parse(text, _NAMES)
        self.assertEqual([tuple(r) for r in parsed], wanted)

    @parameterized.parameters(
        ("", 1, "no algorithm"),
        ("xrang", 1, "xring"),
        ("pscpu:32q:xring", 7, "no size"),
        ("pscpu:32k", 7, "needs an algorithm"),
        ("pscpu:32k:ring", 11, "no algorithm"),
        ("xring#0", 7, "shards"),
        ("xring#x", 7, "shards"),
        ("nccl/xring/tree", 1, "two levels"),
        ("nccl/x", 6, "no algorithm"),
        ("tree:4k:xring:4k:pscpu", 15, "grow"),
        ("xring#65", 7, "from 1 to 64"),
        ("xring#999999999", 7, "from 1 to 64"),
        ("xring#", 7, "shards"),
        ("xring##2", 7, "shards"),
        ("xring#٣", 7, "shards"),
        ("pscpu:٣:xring", 7, "no size"),
        ("pscpu:9999999999999999999:xring", 7, "no size"),
        ("pscpu:-1:xring", 7, "no size"),
        ("pscpu::xring", 7, "no size"),
        ("pscpu:0:xring", 7, "no size"),
        ("pscpu:00k:xring", 7, "no size"),
        (" pscpu", 1, "no algorithm"),
        ("xring/nccl", 7, "inside a host only"),
        ("pscpu:1k:tree/nccl#2", 15, "inside a host only"),
    )
    def test_errors_give_the_position(self, text, character, reason):
        with self.assertRaisesRegex(ValueError, f"character {character}, .*{reason}"):
            spec.parse(text, _NAMES, intra_host_only=["nccl"])

    def test_an_error_stays_on_one_line(self):
        with self.assertRaises(ValueError) as caught:
            spec.parse("xring\nxring", _NAMES)
        self.assertNotIn("\n", str(caught.exception))

    def test_what_is_spelled_is_read_back(self):
        for seed in range(300):
            ranges = _random_spec(random.Random(seed))
            self.assertEqual(spec.parse(_spell(ranges), _NAMES), ranges)

    def test_whatever_is_typed_is_read_or_refused_with_a_position(self):
        """All prefixes of right specs, these with a letter changed, and plain noise."""
        read = 0
        for seed in range(100):
            draw = random.Random(seed)
            text = _spell(_random_spec(draw))
            place = draw.randrange(len(text))
            texts = [text[:n] for n in range(len(text))]
            texts += [text[:place] + draw.choice(_LETTERS) + text[place + 1 :]]
            texts += ["".join(draw.choices(_LETTERS, k=draw.randrange(12)))]
            for typed in texts:
                try:
                    parsed = spec.parse(typed, _NAMES)
                except ValueError as error:
                    says = re.match(_ERROR, str(error), re.DOTALL)
                    self.assertIsNotNone(says, str(error))
                    self.assertBetween(int(says[1]), 1, len(typed) + 1, typed)
                else:
                    self.assertEqual(spec.parse(_spell(parsed), _NAMES), parsed, typed)
                    read += 1
        self.assertGreater(read, 100)


_LETTERS = "abcdegnprsux0123456789kKMGT:/#- \n\0\u0663"
_ERROR = r"all_reduce_spec=.*: at character (\d+), .+"


def _random_spec(draw: random.Random) -> list[spec.SpecRange]:
    limits = sorted(draw.sample(range(2**41), draw.randrange(4)))

    def algorithm():
        return _A(draw.choice(_NAMES), draw.choice([1, 2, 7, spec.MAX_SHARDS]))

    return [
        spec.SpecRange(limit, algorithm(), draw.choice([None, algorithm()]))
        for limit in [*limits, None]
    ]


def _spell(ranges: list[spec.SpecRange]) -> str:
    words = []
    for limit, *levels in ranges:
        levels = [f"{a.name}#{a.shards}" for a in levels if a]
        words += ["/".join(levels)] + ([] if limit is None else [str(limit)])
    return ":".join(words)
