"""Tests of flags.tf_cnn_rules: what tf_cnn_benchmarks refuses, as one sentence."""

import itertools

from absl.testing import parameterized

from flags import parse, tf_cnn_flags, tf_cnn_rules
from flags.tf_cnn_flags import FLAGS
from tests import flag_lines
from tests.flags.tf_cnn_commands import parsed

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


class RulesTest(parameterized.TestCase):
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
        rows = (*tf_cnn_rules.RULES, *tf_cnn_rules.IDLE_WITHOUT)
        for term in itertools.chain.from_iterable((r.flag, *r.others) for r in rows):
            with self.subTest(str(term)):
                choices = tf_cnn_flags._CHOICES.get(term.name, (term.value,))
                self.assertIn(term.name, FLAGS)
                self.assertIn(term.value or choices[0], choices)
