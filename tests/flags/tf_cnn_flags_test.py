"""Tests of flags.tf_cnn_flags: each flag of tf_cnn_benchmarks is taken or refused."""

import itertools

from absl.testing import parameterized

from flags import config, parse, tf_cnn_flags
from flags.tf_cnn_flags import ENVIRONMENT, FLAGS, NO_EFFECT, REFUSED, SAME, TRANSLATED
from tests import flag_lines
from tests.flags.tf_cnn_benchmarks_test import THEIRS
from tests.processes.programs import ROOT

OURS = config.all_flags()

# What is wrong with these, one sentence for each.
WRONG = flag_lines.table("""
--num_batches=3 --num_epochs=2
--num_batches=3: does not go with --num_epochs=2.0; give one
--modle=lenet
 no such flag; did you mean --model, --trt_mode?
--steps_per_loop=3
--steps_per_loop: is a flag of python -m towers.train, not of this
--num_gpus=many
 must be a whole number
--num_gpus=0
 must be at least 1
--optimizer=sgdd
 no such optimizer; did you mean sgd?
--distortions False
False: stray argument; to set --distortions, write --distortions=False
--device=cpu
 needs --data_format=NHWC
--device=cpu --data_format=NCHW
--device=cpu: needs --data_format=NHWC
--init_learning_rate=1 --num_epochs_per_decay=2
--num_epochs_per_decay=2.0: needs --learning_rate_decay_factor
--eval
 needs --train_dir
--save_model_secs=3 --save_model_steps=3
--save_model_secs=3: does not go with --save_model_steps=3; give one
--staged_vars --variable_update=replicated
--staged_vars: does not go with --variable_update=replicated
--job_name=worker --variable_update=replicated
--job_name=worker: does not go with --variable_update=replicated
--variable_update=distributed_all_reduce
 needs --all_reduce_spec
--variable_update=horovod
 one client drives all towers, without Horovod; use --num_gpus
--hierarchical_copy
 needs several GPUs; set --num_gpus
--gpu_thread_mode=global --per_gpu_thread_count=3
--per_gpu_thread_count=3: does not go with --gpu_thread_mode=global
--trt_mode=FP16
 TensorFlow has been built without TensorRT since 2.18; leave it out
--fp16_vars
 variables stay float32 at every compute precision; leave it out
--server_protocol=grpc+verbs
 tasks speak gRPC; leave it out
""")


def parsed(*words):
    return config.flat(parse.parse(["x", *words], {}, config.TfCnnBenchmarksConfig))


def other(name):
    """A value that is not the flag's default, as typed."""
    row = FLAGS[name]
    flag = config.all_flags(config.TfCnnBenchmarksConfig)[name]
    if row.kind is bool:
        return "false" if row.default else "true"
    if flag.choices:
        return next(choice for choice in flag.choices if choice != row.default)
    return "3" if flag.kind in (int, float) else "some/text"


class TableTest(parameterized.TestCase):
    def test_it_has_all_their_flags(self):
        self.assertCountEqual(FLAGS, THEIRS)
        self.assertLen(FLAGS, 138)

    def test_a_flag_that_is_the_same_is_one_of_ours_with_its_kind(self):
        for name, row in FLAGS.items():
            if row.effect == SAME:
                with self.subTest(name):
                    many = OURS[name].many
                    kind = row.kind.__args__[0] if many else row.kind
                    self.assertEqual(kind, OURS[name].kind)

    def test_every_other_row_says_something(self):
        for name, row in FLAGS.items():
            if row.effect != SAME:
                with self.subTest(name):
                    self.assertRegex(row.words, r"^[^\n]{8,}[^.]$")

    def test_the_docs_have_the_table(self):
        page = (ROOT / "docs/tf_cnn_benchmarks.md").read_text(encoding="utf-8")
        self.assertTrue(f"\n{tf_cnn_flags.table()}\n" in page, "print it there again")

    def test_their_defaults_are_accepted_in_every_form(self):
        for name, row in FLAGS.items():
            value = row.default
            if isinstance(value, bool):
                form = f"--{name}" if value else f"--no{name}"
            elif value is None or value in ("", ()):
                continue
            else:
                form = f"--{name}={value}"
            with self.subTest(form):
                self.assertEqual(parsed(form), parsed())

    def test_every_refused_flag_is_one_sentence(self):
        for name, row in FLAGS.items():
            if row.effect == REFUSED:
                with self.subTest(name):
                    with self.assertRaises(parse.UsageError) as caught:
                        parsed(f"--{name}={other(name)}")
                    [error] = caught.exception.errors
                    self.assertIn(row.words, error.replace("`", ""))

    def test_every_other_flag_is_taken(self):
        for name, row in FLAGS.items():
            if row.effect in (SAME, TRANSLATED, ENVIRONMENT, NO_EFFECT):
                with self.subTest(name):
                    value = other(name)
                    try:
                        settings = parsed(f"--{name}={value}")
                    except parse.UsageError as error:
                        # It needs another, or does not go with the default of one.
                        self.assertRegex(str(error), "needs|does not go|Horovod")
                    else:
                        self.assertNotEqual(settings[name], row.default)

    @parameterized.parameters(*WRONG)
    def test_what_is_wrong_is_one_sentence(self, line, sentence):
        with self.assertRaises(parse.UsageError) as caught:
            parsed(*line.split())
        self.assertEqual(caught.exception.errors, [sentence])

    @parameterized.parameters(
        ("--piecewise_learning_rate_schedule=1", "--init_learning_rate=2"),
        ("--eval_during_training_every_n_steps=2", "--eval --train_dir=d"),
        (
            "--eval_during_training_every_n_steps=2",
            "--eval_during_training_every_n_epochs=2",
        ),
        ("--eval_during_training_every_n_steps=2", "--staged_vars"),
    )
    def test_pairs_that_do_not_go_together(self, first, second):
        with self.assertRaisesRegex(
            parse.UsageError, "^--.*: does not go with --[^:]*$"
        ):
            parsed(first, *second.split())

    def test_a_goal_needs_evaluations(self):
        with self.assertRaisesRegex(parse.UsageError, "needs --eval_during_training_"):
            parsed("--stop_at_top_1_accuracy=0.5")

    def test_rules_are_about_flags_and_values_that_there_are(self):
        rows = (*tf_cnn_flags.RULES, *tf_cnn_flags.IDLE_WITHOUT)
        for term in itertools.chain.from_iterable((r.flag, *r.others) for r in rows):
            with self.subTest(str(term)):
                choices = tf_cnn_flags._CHOICES.get(term.name, (term.value,))
                self.assertIn(term.name, FLAGS)
                self.assertIn(term.value or choices[0], choices)
