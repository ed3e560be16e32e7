"""Steps inside the graph are the same steps, bit for bit."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.callbacks.base import NEVER, Callback
from towers.callbacks.evaluate import Evaluate
from towers.callbacks.save_checkpoints import SaveCheckpoints
from towers.callbacks.stop_on_nan import StopOnNan
from towers.checkpoints import checkpoint
from towers.checkpoints.saving import Saving
from towers.compute.tower import TowerSpec
from towers.data import digits, inputs, records
from towers.errors.side_outputs import SideOutputs
from towers.evaluation import eval_graph
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.session import device_loop, loop, summary

v1 = tf.compat.v1

# Momentum, weight decay, moving averages, a learning rate that changes on the way.
UPDATE = Update(
    "momentum",
    Piecewise((0.05, 0.02), (0.3,), warmup_epochs=0.1),
    weight_decay=1e-3,
    ema_decay=0.9,
)
LAST_STEP = 23
SAVED = (10, 20, LAST_STEP)


def _block(x, nn):
    x = nn.batch_norm(nn.conv(x, 4, 3, use_bias=False), activation=tf.nn.relu)
    return nn.dropout(nn.flatten(x), 0.3)


def _logits(x, nn):
    return nn.dense(x, nn.num_classes)


def _model():
    return trainer.model_of(
        ("block", _block),
        ("logits", _logits),
        name="small",
        shape=(6, 6, 1),
        num_classes=10,
    )


def _source(*, in_memory: bool, training: bool = True):
    """The first 200 digits, shuffled, cropped and distorted."""
    rows = digits.read_table()[:200]
    images = np.stack([digits.image(row) for row in rows])
    examples = records.from_arrays(images, rows[:, -1], num_classes=10)
    request = inputs.Request(
        shape=(6, 6, 1), preprocessing="cifar_tutorial", seed=5, prefetch=2
    )
    memory = 2**20 if in_memory else 0
    return inputs.DatasetSource(examples, request, training=training, memory=memory)


class _CountsSteps(Callback):
    """How many steps were seen alone, and how many inside the graph."""

    def __init__(self):
        self.alone = self.inside = 0
        self.losses = []

    def next_due(self, step):
        return NEVER

    def after_run(self, run_context, run_values):
        self.alone += 1

    def after_steps(self, step, losses, seconds):
        self.inside += len(losses)
        self.losses += [(step - len(losses) + 1 + i, x) for i, x in enumerate(losses)]


class DeviceLoopTest(parameterized.TestCase):
    def _run(self, steps_per_loop, *, in_memory=True, last_step=LAST_STEP, **options):
        """All checkpoints, accuracies and summaries of a run with hooks."""
        directory = self.create_tempdir().full_path
        training = trainer.Trainer(
            _model(),
            _source(in_memory=in_memory),
            towers=2,
            batch_size=6,
            update=UPDATE,
            **options,
        )
        train, accuracies = training.train, []
        with train.graph.as_default():
            evaluation = eval_graph.attach(
                TowerSpec(model=_model(), num_classes=10, training=False),
                _source(in_memory=in_memory, training=False),
                placement=training.placement,
                mode=eval_graph.AveragedVariables(train.mode, train.averages),
                batch_size=25,
            )
            scalars = summary.build(train, 1)
            inner = device_loop.build(train.train_op, train.step, train.loss)
            train = train._replace(loop=inner)
            finite = checkpoint.FiniteCheck(train.saved)
            saver = checkpoint.Checkpoints(directory, train.saved, finite=finite)
        train.graph.finalize()

        def act(context, step):
            result = eval_graph.run(evaluation, context.session, step)
            accuracies.append((step, result.means))
            return 0.0

        counts = _CountsSteps()
        events = summary.EventFile("summaries", directory, SideOutputs())
        loop.start(train, training.session, lambda session: None)
        loop.run(
            train,
            training.session,
            [
                counts,
                StopOnNan(train, finite),
                summary.WriteSummaries(train, scalars, events, steps=20),
                SaveCheckpoints(train, Saving(saver), steps=10),
                Evaluate(train, act, stop_at=None, steps=9),
            ],
            last_step=last_step,
            steps_per_loop=steps_per_loop,
        )
        saver.save(training.session, last_step)
        return self._checkpoints(directory), accuracies, _losses(directory), counts

    def _checkpoints(self, directory):
        checkpoints = {}
        for path in checkpoint.all_paths(directory):
            reader = tf.train.load_checkpoint(path)
            names = reader.get_variable_to_shape_map()
            checkpoints[path.rsplit("-", 1)[1]] = {
                n: reader.get_tensor(n) for n in names
            }
        return checkpoints

    @parameterized.parameters(
        # Hooks must see 9, 10, 18 and 20; 19 has nothing beside it to share a loop
        # with, and 8 has not with 7 steps per loop.
        ({"in_memory": True}, {7: 17, 50: 18}),
        ({"in_memory": False, "variable_update": "replicated"}, {50: 18}),
    )
    def test_any_number_of_steps_inside_with_hooks_between(self, options, inside):
        saved, accuracies, losses, counts = self._run(1, **options)
        self.assertEqual((counts.alone, counts.inside), (LAST_STEP, 0))
        self.assertEqual(list(saved), [str(step) for step in SAVED])
        self.assertEqual([step for step, _ in accuracies], [9, 18])
        self.assertEqual(list(losses), [20])
        for part in ("Momentum", "ExponentialMovingAverage", "moving_variance"):
            self.assertTrue(any(name.endswith(part) for name in saved["20"]), part)
        for steps_per_loop, steps_inside in inside.items():
            with self.subTest(steps_per_loop=steps_per_loop):
                other = self._run(steps_per_loop, **options)
                self.assertEqual(other[1:3], (accuracies, losses))
                self.assertEqual(list(other[0]), list(saved))
                for step, values in saved.items():
                    trainer.assert_same_bits(values, other[0][step])
                alone = LAST_STEP - steps_inside
                self.assertEqual(
                    (other[3].alone, other[3].inside), (alone, steps_inside)
                )

    def test_losses_arrive_with_their_steps(self):
        trainings = [
            trainer.Trainer(_model(), _source(in_memory=True)) for _ in range(2)
        ]
        single, many = trainings
        single.start()
        wanted = []
        for step in range(1, 10):
            wanted.append(
                (step, single.session.run([single.train.loss, single.train.step])[0])
            )
        many.add_loop().start()
        counts = _CountsSteps()
        loop.run(many.train, many.session, [counts], last_step=9, steps_per_loop=4)
        self.assertEqual(counts.losses, wanted[:8])
        trainer.assert_same_bits(single.values(), many.values())

    def test_the_loop_stays_on_the_devices_of_the_step(self):
        training = trainer.Trainer(_model(), _source(in_memory=True), towers=2)
        inner = training.add_loop().start().train.loop
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        training.session.run(inner.step, {inner.count: 2}, options, metadata)
        kinds = {}
        for stats in metadata.step_stats.dev_stats:
            for node in stats.node_stats:
                tower = node.node_name.find("tower_")
                if tower >= 0 and "Conv2D" in node.timeline_label:
                    name = node.node_name[tower:].split("/")[0]
                    kinds.setdefault(name, set()).add(stats.device.split("CPU:")[1])
        self.assertEqual(kinds, {"tower_0": {"0"}, "tower_1": {"1"}})


def _losses(directory):
    """Step -> loss, as TensorBoard sees them."""
    [path] = tf.io.gfile.glob(f"{directory}/events*")
    return {
        event.step: value.simple_value
        for event in v1.train.summary_iterator(path)
        for value in event.summary.value
        if value.tag == "loss"
    }
