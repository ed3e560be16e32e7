"""Tests of flags.tf_cnn_benchmarks."""

import re

from absl.testing import absltest, parameterized

from flags import config, tf_cnn_benchmarks
from tests.flags.tf_cnn_commands import THEIRS

# Their switches that are taken: --eval must not turn into a flag with a value.
TAKEN_SWITCHES = (
    "eval",
    "print_training_accuracy",
    "batchnorm_persistent",
    "allow_growth",
    "compact_gradient_transfer",
    "sparse_to_dense_grads",
    "xla",
    "xla_compile",
    "cross_replica_sync",
    "staged_vars",
    "use_fp16",
    "fp16_enable_auto_loss_scale",
    "fuse_decode_and_crop",
    "distort_color_in_yiq",
    "forward_only",
    "freeze_when_forward_only",
    "datasets_repeat_cached_sample",
)

# Their --variable_update, but for those that are taken.
OTHER_MODES = ("distributed_all_reduce", "collective_all_reduce", "horovod")

OURS = config.all_flags()
REFUSED = tf_cnn_benchmarks.refused()


class RefusedTest(absltest.TestCase):
    def test_the_list_of_their_flags_is_whole(self):
        self.assertLen(THEIRS, 138)
        self.assertLen(set(THEIRS), 138)

    def test_each_of_their_flags_is_either_taken_or_refused(self):
        for name in THEIRS:
            with self.subTest(name):
                self.assertNotEqual(name in OURS, name in REFUSED)

    def test_nothing_else_is_refused(self):
        self.assertContainsSubset(REFUSED, THEIRS)

    def test_a_refused_flag_has_one_row(self):
        self.assertEmpty(
            set(tf_cnn_benchmarks.SWITCHES) & set(tf_cnn_benchmarks.SETTINGS)
        )

    def test_the_switches_among_the_taken_are_switches(self):
        switches = [n for n in THEIRS if n in OURS and OURS[n].switch]
        self.assertCountEqual(switches, TAKEN_SWITCHES)

    def test_the_sentence_says_what_to_do(self):
        for name, sentence in REFUSED.items():
            with self.subTest(name):
                self.assertRegex(sentence, "comes with|leave it out|export|start|--")
                self.assertNotRegex(sentence, r"\.$|\n|  ")

    def test_the_way_out_is_open(self):
        for name, sentence in REFUSED.items():
            # A refused flag may be named, but as what comes or as what this one is for.
            if not re.search("comes with|is for --", sentence):
                with self.subTest(name):
                    named = set(re.findall(r"--(\w+)", sentence))
                    self.assertEmpty(named - set(OURS))


class ValuesTest(parameterized.TestCase):
    def test_the_flags_are_ours(self):
        self.assertContainsSubset(tf_cnn_benchmarks.VALUES, OURS)

    @parameterized.parameters(*OTHER_MODES)
    def test_their_other_modes_are_refused_until_a_table_has_them(self, mode):
        settings = config.make(variable_update=mode)
        (problem,) = config.check(settings, {"variable_update": ["parameter_server"]})
        error = problem.sentence()
        self.assertStartsWith(error, f"--variable_update={mode}: ")
        self.assertNotIn("no such", error)
        self.assertEqual(config.check(settings, {"variable_update": [mode]}), [])
