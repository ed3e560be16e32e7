"""From flags to the plan of a run, by comparison with numbers worked out by hand."""

import dataclasses
import os
import shutil
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from flags import config
from models.initial_values import InitialValues
from models.inputs import Images, Inputs, Pairs, Tokens
from models.model import Model, Recipe, Schedule
from tests import batch_reader, digit_runs
from towers import graph, planning
from towers.data import from_arrays, inputs
from towers.errors import memory_limits
from towers.errors.collected import PlanError
from towers.gradients.exchange import GradientExchange
from towers.layout import cluster_spec, placement
from towers.optimizers.loss_scale import LossScaling
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

DIGITS_TRAIN, DIGITS_TEST = 1442, 355

GROWS = Schedule(rates=(0.2, 0.02), epochs=(30,), per_examples=64, warmup_epochs=5)


def _model(data_name="synthetic", **recipe):
    recipe = {"schedule": Schedule((0.1, 0.01), (10,)), "num_epochs": 40, **recipe}
    return Model(
        name="mine",
        blocks=(("logits", lambda x, nn: nn.dense(nn.flatten(x), nn.num_classes)),),
        inputs=Images(
            shape=(8, 8, 1), num_classes=10, data_name=data_name, num_examples=1000
        ),
        recipe=Recipe(batch_size=8, **recipe),
    )


def _dense():
    """A model without batch norm."""
    blocks = (("logits", lambda x, nn: nn.dense(nn.flatten(x), nn.num_classes)),)
    return dataclasses.replace(digit_runs.small_model(), name="dense", blocks=blocks)


def zeros(split):
    """Data of one's own."""
    del split
    return from_arrays(np.zeros([4, 8, 8, 1], np.float32), np.zeros(4, np.int32))


class PlanTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data_dir = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.data_dir)

    def _make(self, model=None, watched=None, **settings):
        settings = {"device": "cpu", **settings}
        model = model or _model()
        if model.inputs.data_name == "digits":
            patch = {"TFDS_DATA_DIR": self.data_dir}
        else:
            patch = {}
        with mock.patch.dict(os.environ, patch):
            config_made = config.make(**settings)
            return planning.make(config_made, lambda name: model, watched=watched)

    def _errors(self, model=None, **settings):
        with self.assertRaises(PlanError) as caught:
            self._make(model, **settings)
        return caught.exception.errors

    # The length of a run.

    @parameterized.parameters(
        # (flags, warm-up steps, timed steps, examples that count, last step)
        ({}, 10, 100, None, 110),
        ({"num_batches": 7}, 10, 7, None, 17),
        ({"num_batches": 7, "num_warmup_batches": 0}, 0, 7, None, 7),
        ({"num_batches": 1, "num_warmup_batches": 3}, 3, 1, None, 4),
        ({"num_epochs": 2.0}, 10, None, 2000, 84),  # 83.3 steps of 24
        ({"num_epochs": 0.0001}, 10, None, 1, 1),
    )
    def test_length_on_synthetic_data(self, flags, warmup, timed, limit, last):
        plan = self._make(num_gpus=3, **flags)
        self.assertEqual(plan.examples_per_step, 24)
        self.assertEqual((plan.num_warmup, plan.num_batches), (warmup, timed))
        self.assertEqual((plan.options.limit, plan.num_steps), (limit, last))
        self.assertIsNone(plan.eval_source)

    @parameterized.parameters(
        ({}, None, 40 * DIGITS_TRAIN, 1803),  # the recipe's 40 epochs in steps of 32
        ({"num_batches": 7}, 7, None, 17),
        ({"num_epochs": 0.5}, None, 721, 23),
    )
    def test_length_on_real_data(self, flags, timed, limit, last):
        plan = self._make(_model("digits"), num_gpus=4, **flags)
        self.assertEqual(plan.source.num_examples, DIGITS_TRAIN)
        if timed:  # then nothing is evaluated, so no split is needed
            self.assertIsNone(plan.eval_source)
        else:
            self.assertEqual(plan.eval_source.num_examples, DIGITS_TEST)
        self.assertEqual(plan.num_batches, timed)
        self.assertEqual((plan.options.limit, plan.num_steps), (limit, last))

    @parameterized.parameters(
        ({}, 17),
        ({"cross_replica_sync": False}, 6 * 17),  # 3 workers of 2 towers
        ({"cross_replica_sync": False, "replication": "between_graph"}, 8 * 17),
        # the position says when it ends, also to an evaluator
        ({"num_epochs": 0.5}, 32),
    )
    def test_an_evaluator_knows_the_end_of_a_run_on_a_cluster(self, flags, last):
        jobs = {"worker": ("a:1", "b:1", "c:1"), "ps": ("d:1",), "chief": ("e:1",)}
        me = cluster_spec.Task(cluster_spec.EVALUATOR, 0)
        length = {} if "num_epochs" in flags else {"num_batches": 7}
        # With between-graph replication the chief trains, too.
        watched = cluster_spec.ClusterSpec(jobs, me, between="replication" in flags)
        plan = self._make(num_gpus=2, watched=watched, **length, **flags)
        self.assertEqual(plan.num_steps, last)
        self.assertEqual(plan.placement.num_towers, 2)

    @parameterized.parameters(
        *({"variable_update": mode} for mode in VARIABLE_UPDATES),
        {"cross_replica_sync": False},
        {"accumulate_steps": 2},
    )
    def test_schedules_end_with_the_run(self, **flags):
        flags |= {"num_batches": 5, "num_warmup_batches": 1, "num_gpus": 3}
        plan = self._make(learning_rate_schedule="cosine", **flags)
        examples = plan.num_steps * plan.examples_per_step
        self.assertEqual(plan.options.epochs, examples / plan.source.num_examples)
        self.assertEqual(plan.update.learning_rate.epochs, plan.options.epochs)

    def test_epochs_in_steps(self):
        plan = self._make(num_gpus=3)
        self.assertEqual(
            [plan.steps(epochs) for epochs in (0.001, 0.024, 0.0241, 1, 3)],
            [1, 1, 2, 42, 125],
        )
        self.assertEqual(self._make(num_gpus=1, batch_size=5).steps(2.015), 403)

    # The learning rate.

    @parameterized.parameters(
        ({}, None, {0: 0.1, 9.9: 0.1, 10: 0.01, 50: 0.01}),
        # 4 towers of 8: half of the 64 examples that the rates are meant for.
        ({}, GROWS, {0: 0, 1: 0.02, 5: 0.1, 29: 0.1, 30: 0.01}),
        ({"batch_size": 32}, GROWS, {1: 0.08, 5: 0.4, 30: 0.04}),
        ({"num_learning_rate_warmup_epochs": 2.0}, None, {0: 0, 1: 0.05, 2: 0.1}),
        ({"num_learning_rate_warmup_epochs": 0.0}, GROWS, {0: 0.1, 5: 0.1}),
        # 32 of 256 examples.
        ({"resnet_base_lr": 0.8}, GROWS, {0: 0, 2.5: 0.05, 5: 0.1, 30: 0.01}),
        ({"init_learning_rate": 0.3}, GROWS, {0: 0.3, 40: 0.3}),
        (
            {"init_learning_rate": 0.3, "num_learning_rate_warmup_epochs": 3.0},
            None,
            {0: 0, 1: 0.1, 3: 0.3, 40: 0.3},
        ),
        (
            {
                "init_learning_rate": 0.8,
                "num_epochs_per_decay": 2.0,
                "learning_rate_decay_factor": 0.5,
                "minimum_learning_rate": 0.15,
            },
            GROWS,
            {0: 0.8, 1.9: 0.8, 2: 0.4, 4: 0.2, 6: 0.15, 60: 0.15},
        ),
        # 4 towers x 8 images x 2 rounds: the 64 that the rate is meant for.
        ({"accumulate_steps": 2}, GROWS, {2.5: 0.1, 5: 0.2, 30: 0.02}),
        ({"num_learning_rate_warmup_epochs": 0.0}, GROWS, {0: 0.1, 30: 0.01}),
        (
            {
                "init_learning_rate": 0.8,
                "num_epochs_per_decay": 2.0,
                "learning_rate_decay_factor": 0.5,
                "num_learning_rate_warmup_epochs": 4.0,
            },
            None,
            {0: 0, 3: 0.6, 4: 0.2, 6: 0.1},
        ),
        (
            {"piecewise_learning_rate_schedule": "0.5;1;0.25;3.5;0.125"},
            GROWS,
            {0: 0.5, 1: 0.25, 3.4: 0.25, 3.5: 0.125},
        ),
    )
    def test_learning_rate(self, flags, schedule, wanted):
        model = _model(schedule=schedule) if schedule else _model()
        rate = self._make(model, num_gpus=4, **flags).update.learning_rate
        with tf.Graph().as_default(), v1.Session() as session:
            rates = session.run([rate(tf.constant(float(epoch))) for epoch in wanted])
        for epoch, value in zip(wanted, rates):
            self.assertAlmostEqual(value, wanted[epoch], places=6, msg=str(epoch))

    def test_a_base_rate_for_a_rate_that_does_not_grow(self):
        [error] = self._errors(resnet_base_lr=0.1)
        self.assertRegex(error, "--resnet_base_lr=0.1: .*use --init_learning_rate")
        schedule = dataclasses.replace(GROWS, rates=(0.0, 0.1), epochs=(1.0,))
        [error] = self._errors(_model(schedule=schedule), resnet_base_lr=0.1)
        self.assertRegex(error, "=0.1: .* begins with 0.*use --init_learning_rate")

    # The update.

    @parameterized.parameters((0.0, None, None), (2.0, None, 2.0), (2.0, 0.5, 0.5))
    def test_the_norm_that_gradients_are_clipped_to(self, recipe, flag, wanted):
        flags = {} if flag is None else {"gradient_clip_norm": flag}
        update = self._make(_model(clip_norm=recipe), **flags).update
        self.assertEqual(update.clip_norm, wanted)
        off = self._make(_model(clip_norm=recipe), gradient_clip_norm=0.0).update
        self.assertIsNone(off.clip_norm)

    def test_the_recipe_decides_what_no_flag_does(self):
        recipe = dict(optimizer="rmsprop", weight_decay=0.5, ema_decay=0.25)
        decayed = "kernel".__contains__
        update = self._make(_model(decayed=decayed, **recipe), rmsprop_decay=0.5).update
        self.assertEqual(
            (update.optimizer, update.weight_decay, update.ema_decay),
            ("rmsprop", 0.5, 0.25),
        )
        self.assertEqual(
            [update.decayed(name) for name in ("kernel", "bias")], [True, False]
        )
        self.assertEqual(update.settings.rmsprop_decay, 0.5)
        update = self._make(
            _model(**recipe), optimizer="sgd", weight_decay=0.0, ema_decay=0.0
        ).update
        self.assertEqual(
            (update.optimizer, update.weight_decay, update.ema_decay), ("sgd", 0.0, 0.0)
        )

    def test_settings_that_the_optimizer_does_not_read(self):
        errors = self._errors(
            optimizer="adam", momentum=0.5, nesterov=False, resnet_base_lr=0.1
        )
        self.assertEqual(
            errors[:2],
            [
                "--momentum=0.5: --optimizer=adam does not read it",
                "--nonesterov: --optimizer=adam does not read it",
            ],
        )
        self.assertStartsWith(errors[2], "--resnet_base_lr")
        self.assertLen(self._errors(optimizer="sgd", adam_epsilon=0.5), 1)
        self._make(optimizer="adam", adam_epsilon=0.5)

    # Options.

    def test_data_format(self):
        self.assertEqual(self._make().options.data_format, "NHWC")
        plan = self._make(data_format="NCHW")
        self.assertEqual(plan.options.data_format, "NCHW")
        gpu = dataclasses.replace(placement.local(2, kind="cpu"), kind="gpu")
        with mock.patch.object(placement, "local", return_value=gpu):
            self.assertEqual(self._make().options.data_format, "NCHW")
            for narrow in ({"use_fp16": True}, {"compute_dtype": "bfloat16"}):
                self.assertEqual(self._make(**narrow).options.data_format, "NHWC")
            plan = self._make(data_format="NHWC")
            self.assertEqual(plan.options.data_format, "NHWC")

    def test_images_are_distorted_unless_told_otherwise(self):
        for asked, wanted in ((None, True), (False, False)):
            with mock.patch.object(inputs, "get", wraps=inputs.get) as get:
                self._make(augment=asked)
            self.assertEqual(get.call_args_list[0].args[1].augment, wanted)

    def test_more_outputs_than_classes(self):
        for settings in ({}, {"data_name": "digits"}):
            model = dataclasses.replace(_dense(), inputs=Images((8, 8, 1), 10))
            plan = self._make(model, num_classes=11, batch_size=3, **settings)
            self.assertEqual(plan.source.num_classes, 11)
            built = graph.build(**plan.parts)
            self.assertEqual(built.saved["logits/dense/bias"].shape, [11])

    def test_labels_of_synthetic_data_are_the_models_classes(self):
        source = self._make(num_classes=300, batch_size=40).source
        labels = batch_reader.read(source, 1)[1]
        self.assertLess(max(labels), 10)

    def test_initial_values(self):
        self.assertEqual(self._make().options.initial_values, InitialValues())
        plan = self._make(
            conv_initializer="lecun_normal",
            dense_initializer="truncated_normal",
            zero_gamma=False,
        )
        wanted = InitialValues("lecun_normal", "truncated_normal", False)
        self.assertEqual(plan.options.initial_values, wanted)

    def test_the_loss_scale(self):
        for flags, wanted in (
            ({}, LossScaling(128.0, 0)),
            ({"fp16_loss_scale": 8.0}, LossScaling(8.0, 0)),
            (
                {"fp16_enable_auto_loss_scale": True, "fp16_inc_loss_scale_every_n": 7},
                LossScaling(128.0, 7),
            ),
        ):
            plan = self._make(use_fp16=True, **flags)
            self.assertEqual(plan.options.loss_scaling, wanted)
        self.assertIsNone(self._make().options.loss_scaling)

    def test_batch_sizes_and_seed(self):
        plan = self._make(num_gpus=2)
        self.assertEqual((plan.options.batch_size, plan.eval_batch_size), (8, 8))
        flags = {"batch_size": 5, "eval_batch_size": 9, "tf_random_seed": 3}
        plan = self._make(_model("digits"), **flags)
        self.assertEqual((plan.options.batch_size, plan.eval_batch_size), (5, 9))
        self.assertEqual(plan.options.seed, 3)

    def test_reduction(self):
        self.assertEqual(self._make().options.exchange, GradientExchange())
        plan = self._make(
            variable_update="replicated",
            all_reduce_spec="pscpu:2k:xring",
            agg_small_grads_max_bytes=64,
            agg_small_grads_max_group=3,
        )
        self.assertEqual(
            plan.options.exchange, GradientExchange("pscpu:2k:xring", 0, 64, 3)
        )
        [error] = self._errors(variable_update="replicated", all_reduce_spec="pscpux")
        self.assertStartsWith(error, "--all_reduce_spec=pscpux: ")
        [error] = self._errors(variable_update="replicated", all_reduce_spec="nccl")
        self.assertStartsWith(error, "--all_reduce_spec=nccl: at character 1, nccl ")

    def test_transfer_of_gradients(self):
        for asked, computed, wanted in (
            (None, "bfloat16", None),
            ("true", "bfloat16", tf.bfloat16),
            ("false", "bfloat16", tf.float32),
            ("float16", "float32", tf.float16),
            ("bfloat16", "float32", tf.bfloat16),
        ):
            plan = self._make(compact_gradient_transfer=asked, compute_dtype=computed)
            self.assertEqual(plan.options.exchange.compact_gradient_transfer, wanted)
        plan = self._make(compact_gradient_transfer="true", use_fp16=True)
        self.assertEqual(plan.options.exchange.compact_gradient_transfer, tf.float16)

    # Settings that cannot be satisfied.

    def test_a_cluster_has_a_tower_on_every_device(self):
        spec = cluster_spec.local({"ps": 1, "worker": 3})
        settings = config.make(device="cpu", num_gpus=2, num_batches=5)
        plan = planning.make(settings, lambda name: _model(), spec)
        self.assertLen(plan.placement.towers, 6)
        self.assertEqual(plan.examples_per_step, 48)

    def test_classes_are_on_the_devices_of_one_worker(self):
        spec = cluster_spec.local({"ps": 1, "worker": 2})
        settings = config.make(device="cpu", num_gpus=4, shard_classifier=2)
        plan = planning.make(settings, lambda name: _model(), spec)
        self.assertLen(plan.placement.towers, 4)
        for devices in plan.placement.stages:
            self.assertLen(set(map(placement.task_of, devices)), 1)
        # With 3 devices per worker, one tower would be on two workers.
        error = "--num_gpus=3: is not a multiple of --shard_classifier=2; write"
        settings = config.make(local_cluster="worker:2", num_gpus=3, shard_classifier=2)
        [problem] = config.check(settings, {})
        self.assertStartsWith(problem.sentence(), error)

    @parameterized.parameters(
        {"partition_bytes": 1000}, {"variable_placement": "round_robin"}
    )
    def test_variables_are_spread_over_two_tasks_or_more(self, **asked):
        [(name, value)] = asked.items()

        def make(ps):
            spec = cluster_spec.local({"ps": ps, "worker": 1})
            settings = config.make(device="cpu", **asked)
            return planning.make(settings, lambda name: _model(), spec)

        self.assertEqual(getattr(make(2).options.exchange, name), value)
        with self.assertRaises(PlanError) as caught:
            make(1)
        [error] = caught.exception.errors
        self.assertRegex(error, f"^--{name}={value}: .*; use .* two ps tasks, or leave")
        # The sentence offers nothing that would be refused.
        [error] = self._errors(**asked)
        self.assertRegex(error, "; use a cluster with two ps tasks, or leave")
        gpus = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
        with mock.patch.object(tf.config, "list_physical_devices", return_value=gpus):
            [error] = self._errors(device="gpu", **asked)
        self.assertRegex(error, "; write --local_parameter_device=gpu with .*=2 or")

    def test_clients_have_no_more_steps_than_their_stamps_count(self):
        spec = cluster_spec.local({"ps": 1, "worker": 2}, controller=False)
        between = dataclasses.replace(spec, between=True)
        settings = config.make(device="cpu", num_warmup_batches=0, num_batches=2**28)
        planning.make(settings, lambda name: _model(), spec)
        with self.assertRaises(PlanError) as caught:
            planning.make(settings, lambda name: _model(), between)
        [error] = caught.exception.errors
        self.assertRegex(error, "has 268435456; lower --num_batches")

    def test_workers_of_a_local_cluster_have_gpus_of_their_own(self):
        gpus = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
        asked = dict(local_cluster="ps:1,worker:2", model="lenet", device="gpu")
        spec = cluster_spec.local({"ps": 1, "worker": 2})
        with mock.patch.object(tf.config, "list_physical_devices", return_value=gpus):
            with self.assertRaises(PlanError) as caught:
                planning.make(config.make(**asked), lambda name: _model(), spec)
            settings = config.make(**asked, logical_gpus=2)
            plan = planning.make(settings, lambda name: _model(), spec)
        self.assertEqual(plan.placement.gpu_split, 2)
        [error] = caught.exception.errors
        self.assertRegex(error, "^--local_cluster: 2 workers .*=2 to split")

    def test_settings_of_evaluations_that_there_are_not(self):
        model, flags = _model("digits"), {"num_batches": 5, "num_eval_batches": 3}
        [error] = self._errors(model, **flags)
        self.assertRegex(error, "^--num_eval_batches=3: is about .* --eval_at_end, or")
        self._make(model, num_eval_batches=3)

    def test_a_folder_of_data_without_a_name(self):
        [error] = self._errors(data_dir=self.data_dir)
        self.assertRegex(error, f"^--data_dir={self.data_dir}: say which .*--data_name")
        [error] = self._errors(train_split="train[:10]")
        self.assertRegex(
            error, r"^--train_split='train\[:10\]': .* synthetic by default$"
        )
        self._make(_model("digits"), train_split="train[:10]")

    def test_a_train_dir_that_is_only_read_is_not_made(self):
        path = os.path.join(self.create_tempdir(), "typo")
        self._make(_model("digits"), eval=True, train_dir=path)
        self.assertFalse(os.path.exists(path))

    def test_images_that_do_not_fit(self):
        model = _model("digits")
        images = dataclasses.replace(
            model.inputs, shape=(24, 24, 3), preprocessing="cifar_tutorial"
        )
        [error] = self._errors(dataclasses.replace(model, inputs=images))
        self.assertRegex(error, "8x8x1 do not fit a model that reads 24x24x3")

    def assertStartsWith(self, text, start):  # noqa: N802 - as unittest has it
        self.assertEqual(text[: len(start)], start)


class ChecksTest(parameterized.TestCase):
    def _errors(self, model=None, spec=None, **settings):
        settings = {"data_name": "synthetic", "device": "cpu", **settings}
        with self.assertRaises(PlanError) as caught:
            planning.make(config.make(**settings), lambda name: model or _dense(), spec)
        return caught.exception.errors

    @parameterized.parameters(
        ({"ps": 2}, {"variable_update": "replicated"}, "=parameter_server$"),
        ({"ps": 2}, {"shard_embeddings": 3}, "has 2 ps tasks; write 2 or fewer$"),
        (
            {"ps": 2},
            {"num_stages": 2, "num_gpus": 2},
            "; leave out --shard_embeddings$",
        ),
        ({}, {}, "has 0 ps tasks; give it as many$"),
    )
    def test_rows_on_a_cluster_need_ps_tasks(self, tasks, settings, error):
        spec = cluster_spec.local({**tasks, "worker": 1})
        problems = self._errors(spec=spec, **{"shard_embeddings": 2, **settings})
        self.assertRegex(problems[0], error)

    def test_variables_of_a_cluster_are_not_on_gpus(self):
        spec = cluster_spec.local({"worker": 1})
        [error] = self._errors(spec=spec, local_parameter_device="gpu")
        self.assertRegex(error, "^--local_parameter_device=gpu.*on a cluster")

    def test_data_that_python_reads_is_read_where_the_graph_is_built(self):
        spec = cluster_spec.local({"worker": 1})
        (error,) = self._errors(spec=spec, data_name="tests.planning_test:zeros")
        self.assertRegex(error, "_test:zeros: Python reads it")
        self.assertIn("--replication=between_graph", error)

    def test_batches_that_no_memory_holds(self):
        [error] = self._errors(accumulate_steps=2**31 - 1)
        self.assertRegex(error, "^--accumulate_steps=2147483647: a step would have")
        limit = memory_limits.Limit("this machine", 16 * 10**9, 0)
        with mock.patch.object(memory_limits, "of_process", return_value=[limit]):
            [error] = self._errors(
                data_dir=digit_runs.data_dir(),
                data_name="digits",
                eval_at_end=True,
                eval_batch_size=2**31 - 1,
            )
        self.assertRegex(error, "^--eval_batch_size=2147483647: .* leaves 16.0 GB")
        # 1000 crops of 144 bytes, and as many that are prefetched.
        limit = memory_limits.Limit("a cgroup", 200_000, 0)
        with mock.patch.object(memory_limits, "of_process", return_value=[limit]):
            digits = {"data_dir": digit_runs.data_dir(), "data_name": "digits"}
            [error] = self._errors(batch_size=1000, **digits)
        self.assertRegex(error, "^--batch_size=1000: the batches would take")

    @parameterized.parameters({"data_format": "NCHW"}, {"augment": False})
    def test_flags_that_only_images_give_a_meaning(self, **flags):
        model = dataclasses.replace(_dense(), inputs=Tokens(length=4))
        [error] = self._errors(model, **flags)
        [name] = flags
        self.assertRegex(error, f"{name}.*: dense reads tokens, not images")

    @parameterized.parameters(
        ((1.0, 3.0), None, "has 2 weights, and the data 10 classes"),
        ((0.0,) * 10, None, "is 0 for each class, so nothing could be learnt"),
        ((1.0, 3.0), Tokens(length=4), "needs labels that are one class, an integer"),
        ((1.0, 3.0), Pairs((8, 9)), "needs labels that are one class, an integer"),
        (
            (1.0, 3.0),
            Inputs(tf.TensorSpec([3]), tf.TensorSpec([]), num_classes=2),
            "needs labels that are one class, an integer",
        ),
    )
    def test_class_weights_that_do_not_fit(self, weights, reads, words):
        model = dataclasses.replace(_dense(), inputs=reads) if reads else _dense()
        [error] = self._errors(model, class_weight=weights)
        shown = ",".join(map(str, weights))
        self.assertStartsWith(error, f"--class_weight={shown}: {words}")

    @parameterized.parameters(
        (9, None, "data set synthetic has 10 classes; write that many or more"),
        (11, Tokens(length=4), "the model does not tell classes apart; leave it out"),
        (11, Pairs((8, 9)), "the model does not tell classes apart; leave it out"),
    )
    def test_outputs_that_do_not_fit(self, number, reads, words):
        model = _model()
        model = dataclasses.replace(model, inputs=reads) if reads else model
        [error] = self._errors(model, num_classes=number)
        self.assertEqual(error, f"--num_classes={number}: {words}")

    def test_augmentation_of_a_preprocessing_without(self):
        plain = dataclasses.replace(_dense(), inputs=Images((8, 8, 1), 10))
        [error] = self._errors(plain, augment=True)
        self.assertEqual(
            error,
            "--augment: dense's preprocessing, scale, has no augmentation; "
            "leave it out",
        )
        for model, augment in ((plain, False), (_dense(), True)):
            settings = config.make(data_name="synthetic", device="cpu", augment=augment)
            planning.make(settings, lambda name, model=model: model)

    def test_batch_norm_of_a_model_without(self):
        [error] = self._errors(batch_norm="sync", num_gpus=2)
        self.assertStartsWith(error, "--batch_norm=sync: dense has no batch norm")
