"""TensorFlow's own errors, provoked, become one sentence."""

import gc

import tensorflow as tf

from towers.errors import explain
from towers.layout import placement

v1 = tf.compat.v1


def _error(make, num_devices=2):
    """The error of running what `make` puts into a graph."""
    where = placement.local(num_devices, kind="cpu")
    try:
        with tf.Graph().as_default():
            fetch = make(where)
            with v1.Session(config=placement.session_config(where)) as session:
                session.run(fetch)
    except tf.errors.OpError as error:
        return error
    raise AssertionError("there was no error")


class ExplainTest(tf.test.TestCase):
    def _assert_sentence(self, sentence, pattern):
        self.assertRegex(sentence, pattern)
        self.assertNotIn("\n", sentence)

    def test_an_operation_without_a_kernel(self):
        def strings_on_the_gpu(where):
            del where
            with tf.device(placement.device("GPU", 0)), tf.name_scope("tower_1/words"):
                return tf.strings.upper("word", name="upper")

        self._assert_sentence(
            explain.sentence(_error(strings_on_the_gpu)),
            r"operation tower_1/words/upper \(tower_1, block words\) has no kernel for "
            r"its device: .*--device=cpu",
        )

    def test_channels_first_where_only_channels_last_has_a_kernel(self):
        def pool(where):
            del where
            with tf.name_scope("tower_1/block"):
                x = v1.placeholder_with_default(tf.ones([1, 2, 4, 4], tf.float64), None)
                return tf.nn.max_pool2d(x, 2, 2, "SAME", data_format="NCHW")

        self._assert_sentence(
            explain.sentence(_error(pool)),
            r"operation block/\w+ \(tower_1, block block\) failed: .*NHWC on device "
            r"type CPU; write --data_format=NHWC$",
        )

    def test_a_device_that_is_not_there(self):
        def far_away(where):
            del where
            with tf.device(placement.device("CPU", 7)):
                return tf.identity(1.0, name="alone")

        self._assert_sentence(
            explain.sentence(_error(far_away)),
            r"operation alone \(alone\) has no kernel.*CPU:7",
        )

    def test_a_function_that_is_gone(self):
        def call(where):
            del where
            with tf.Graph().as_default() as graph:
                tf.numpy_function(lambda: 1.0, [], tf.float64, name="call")
            nodes = graph.as_graph_def()
            del graph
            gc.collect()
            return tf.import_graph_def(nodes, return_elements=["call:0"])

        error = _error(call)
        self._assert_sentence(
            explain.sentence(error),
            "a tf.numpy_function of the model calls a function that is gone .* module$",
        )
        # The definition does not help if the function is in another process.
        for where in (
            "From /job:worker/task:0:\n",
            "\n==\nUNKNOWN: From /job:ps/task:0:\n",
        ):
            there = tf.errors.UnknownError(None, None, where + error.message)
            self._assert_sentence(
                explain.sentence(there),
                "a tf.numpy_function .* the task .* on a cluster .* own operations$",
            )

    def test_out_of_memory(self):
        # TensorFlow's message; a real failure takes 10 s of retries.
        error = tf.errors.ResourceExhaustedError(
            None, None, "{{node x}} OOM when allocating tensor with shape[9,9]\nmore"
        )
        self._assert_sentence(
            explain.sentence(error), "^out of memory .*lower --batch_size$"
        )

    def test_a_full_disk_is_not_the_memory(self):
        error = tf.errors.ResourceExhaustedError(
            None, None, "/x/events.out; No space left on device\nmore"
        )
        self._assert_sentence(
            explain.sentence(error),
            r"^the disk is full \(/x/events.out; No space left on device\); make room$",
        )

    def test_the_reason_is_what_follows_where_the_node_was_made(self):
        def closed(where):
            del where
            mail = tf.queue.FIFOQueue(1, [tf.int32])
            with tf.control_dependencies([mail.close()]):
                return mail.dequeue()

        text = _error(closed).message
        self.assertStartsWith(text, "Graph execution error:")
        self.assertRegex(explain.reason(text), "^FIFOQueue .* is closed and has")
        several = "2 root error(s) found.\n  (0) ABORTED: gone\n  (1) ABORTED: gone"
        self.assertEqual(explain.reason(several), "gone")
        # As tasks report each other.
        for task in ("From /job:ps/replica:0/task:0:", "=====\nFrom /job:ps/task:0:"):
            text = f"{task}\nSocket closed\n====="
            self.assertEqual(explain.reason(text), "Socket closed")
            several = f"1 root error(s) found.\n  (0) UNAVAILABLE: {text}"
            self.assertEqual(explain.reason(several), "Socket closed")
        self.assertEqual(explain.reason("Socket closed\nAdditional"), "Socket closed")
        self.assertEqual(explain.reason(""), "no reason given")
        self.assertEqual(explain.reason("a word " * 99), "a word " * 28 + "a ...")

    def test_an_error_of_a_session_begins_with_its_reason(self):
        graph = tf.Graph()
        with graph.as_default(), tf.compat.v1.Session() as session:
            loaded = tf.raw_ops.RestoreV2(
                prefix="/none",
                tensor_names=["a"],
                shape_and_slices=[""],
                dtypes=["int8"],
            )
            with self.assertRaises(tf.errors.OpError) as caught:
                session.run(loaded)
        self.assertStartsWith(
            explain.cause(caught.exception), "Unsuccessful TensorSliceReader"
        )
        # A controller's session reports its own task as any other.
        text = "From /job:chief/replica:0/task:0:\n/x/model; No space left on device"
        full = tf.errors.ResourceExhaustedError(None, None, text)
        self.assertEqual(explain.cause(full), "/x/model; No space left on device")
        self.assertEqual(explain.cause(TimeoutError()), "TimeoutError")

    def test_an_operation_of_the_model_that_fails(self):
        def look_up(scope):
            def make(where):
                del where
                with tf.device(placement.device("CPU", 1)), tf.name_scope(scope):
                    return tf.gather([1.0, 2.0], v1.placeholder_with_default(5, []))

            return make

        for scope, place in (
            ("tower_1/words", r"words/GatherV2 \(tower_1, block words\)"),
            ("tower_1/gradients/words", r"gradients/.* \(tower_1, block words\)"),
            (
                "evaluation/tower_1/words",
                r"words/.* \(evaluation/tower_1, block words\)",
            ),
            ("tower_1/look_up/rows", r"look_up/rows/GatherV2 \(tower_1\)"),
        ):
            self._assert_sentence(
                explain.sentence(_error(look_up(scope))),
                rf"^operation {place} failed: indices = 5 is not in \[0, 2\); mend",
            )
        # An operation in no tower does not belong to the model.
        self.assertIsNone(explain.sentence(_error(look_up("input"))))

    def test_an_operation_of_a_stage_that_fails(self):
        # TensorFlow's message has one form or the other.
        failed = tf.errors.InvalidArgumentError(
            None,
            None,
            "Graph execution error:\n\nhalf : Tensor had NaN values\n"
            "\t [[{{node import/half/CheckNumerics}}]]\n"
            "\t [[tower_0/stage_1/micro_batch_0/forward_1/StatefulPartitionedCall]]",
        )
        self._assert_sentence(
            explain.sentence(failed),
            r"^operation half/CheckNumerics \(block half\) failed: half : Tensor had",
        )
        recv = "{{node tower_1/stage_1/micro_batch_1/backward_1/PartitionedCall/_61}}"
        waited = tf.errors.CancelledError(None, None, f"RecvAsync is cancelled. {recv}")
        self._assert_sentence(
            explain.sentence(waited),
            "^an operation of a stage failed, .* of tower_1; leave out --num_stages",
        )
        other = tf.errors.CancelledError(None, None, "Session has been closed.")
        self.assertIsNone(explain.sentence(other))

    def test_an_assertion_of_the_model(self):
        def check(where):
            del where
            with tf.control_dependencies([tf.debugging.Assert(False, ["mine"])]):
                return tf.identity(1.0)

        self._assert_sentence(
            explain.sentence(_error(check)),
            r"^an assertion of the model does not hold: .*\[mine\]",
        )

    def test_a_loop_that_xla_cannot_compile(self):
        def loop(where):
            del where

            @tf.function(jit_compile=True)
            def slope(x):
                y = tf.while_loop(lambda y: y[0] < 9, lambda y: [y * y], [x])[0]
                return tf.gradients(y, x)[0]

            return slope(v1.placeholder_with_default([2.0], [1]))

        self._assert_sentence(
            explain.sentence(_error(loop)),
            r"^XLA cannot compile the model \(XLA compilation requires a fixed",
        )

    def test_other_errors_are_not_explained(self):
        def take(where):
            del where
            queue = tf.queue.FIFOQueue(1, tf.float32)
            with tf.control_dependencies([queue.close()]):
                return queue.dequeue()

        self.assertIsNone(explain.sentence(_error(take)))
