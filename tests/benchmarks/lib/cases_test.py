"""Cases as they are written on the command line, and the length of their runs."""

from absl.testing import parameterized

from benchmarks.lib import cases
from benchmarks.lib.cases import BenchmarkCase


class CasesTest(parameterized.TestCase):
    def test_reads_what_it_writes(self):
        case = BenchmarkCase.parse(" lenet:4x8 ")
        self.assertEqual(case, BenchmarkCase("lenet", 4, 8))
        self.assertEqual(str(case), "lenet:4x8")
        self.assertEqual(case.examples, 32)
        self.assertEqual(str(case.joined), "lenet:1x32")

    def test_sixteen_bits(self):
        case = BenchmarkCase.parse("resnet50:4x4/bfloat16")
        self.assertEqual(case, BenchmarkCase("resnet50", 4, 4, "bfloat16"))
        self.assertEqual(str(case), "resnet50:4x4/bfloat16")
        self.assertEqual(str(case.joined), "resnet50:1x16/bfloat16")
        with self.assertRaisesRegex(ValueError, "as lenet:4x8"):
            BenchmarkCase.parse("lenet:4x8/int8")

    def test_a_users_own_model(self):
        self.assertEqual(
            BenchmarkCase.parse("mine.net:tiny:2x8"),
            BenchmarkCase("mine.net:tiny", 2, 8),
        )

    @parameterized.parameters("", "lenet", "lenet:4", "lenet:0x8", "lenet:4x", ":4x8")
    def test_refuses(self, text):
        with self.assertRaisesRegex(ValueError, "as lenet:4x8"):
            BenchmarkCase.parse(text)

    def test_no_case_twice(self):
        with self.assertRaisesRegex(ValueError, "twice"):
            cases.parse_list("lenet:1x8, lenet:1x8")

    def test_the_default_has_both_of_each_pair(self):
        default = cases.parse_list(cases.DEFAULT)
        several = [case for case in default if case.towers > 1]
        self.assertLen(several, 5)
        self.assertContainsSubset([case.joined for case in several], default)

    def test_image_models_have_as_many_images_on_one_tower_and_on_four(self):
        image_models = cases.of_image_models((1, 4))
        self.assertLen(image_models, 2 * len(cases.IMAGE_MODELS))
        for joined, four in zip(image_models[::2], image_models[1::2]):
            self.assertEqual(four.joined, joined)

    def test_length(self):
        self.assertEqual(cases.length(BenchmarkCase("resnet20", 1, 100), 30), (300, 30))
        # Few steps as long as these fit into the time.
        self.assertEqual(cases.length(BenchmarkCase("resnet50", 4, 4), 0.1), (5, 3))
        self.assertEqual(cases.length(BenchmarkCase("unheard_of", 1, 1), 10), (100, 10))
        self.assertEqual(cases.of_steps(5), (5, 3))
