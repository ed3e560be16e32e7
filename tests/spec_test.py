"""The grammar of --all_reduce_spec: what it means, where it is wrong."""

from absl.testing import absltest, parameterized

from towers import spec

_NAMES = ("pscpu", "psgpu", "xring", "nccl", "rechd", "tree")
_A = spec.Algorithm


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
        ("pscpu:2K:tree:1G:xring:1T:nccl", None),
    )
    def test_specs(self, text, wanted):
        found = spec.parse(text, _NAMES)
        if wanted is not None:
            self.assertEqual([tuple(r) for r in found], wanted)

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
    )
    def test_errors_give_the_position(self, text, character, reason):
        with self.assertRaisesRegex(ValueError, f"character {character}, .*{reason}"):
            spec.parse(text, _NAMES)


if __name__ == "__main__":
    absltest.main()
