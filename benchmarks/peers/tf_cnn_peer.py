"""tf_cnn_benchmarks on given batches, for `same_steps`; saves what each step computes.

    cd scripts/tf_cnn_benchmarks && PYTHONPATH=. python .../tf_cnn_peer.py runs.json

Runs its own `BenchmarkCNN` with two changes: the synthetic images and labels are the
given ones, and dropout can be left out.  Its variables are resource variables, by its
own flag: the others are updated in place while gradients still read them, on CPUs, so
that two runs differ.

Its modules have names of packages of this project, so this file is run as a program and
imports nothing from here.

`runs.json` is a list of runs, each a dict of

    flags    of tf_cnn_benchmarks
    batches  an .npz file: `images` float32 [steps, towers, batch, height, width, 3] and
             `labels` int32 [steps, towers, batch]
    dropout  whether there is any
    saved    after which steps the variables and slots are saved; 0 is before the first
    folder   where to write them, `model.ckpt-N` after N steps, and `steps.json`:
             [loss, learning rate] of each step
"""

import json
import os
import sys
from collections.abc import Collection, Mapping
from typing import Any
from unittest import mock

import benchmark_cnn
import cnn_util
import convnet_builder
import numpy as np
import tensorflow.compat.v1 as tf

_RATE = "learning_rate_tensor"  # name of the operation


class GivenBatches(benchmark_cnn.BenchmarkCNN):
    """A run on given batches.

    Args:
      params: of tf_cnn_benchmarks.
      batches: the arrays of the .npz file.
      saved: after which steps the variables are saved.
      folder: of these checkpoints.
    """

    def __init__(
        self,
        params: Any,
        batches: Mapping[str, np.ndarray],
        saved: Collection[int],
        folder: str,
    ):
        super().__init__(params)
        self._saved = saved
        self._batches = batches
        self._folder = folder
        self._towers = 0
        self.model.get_synthetic_inputs = self._inputs
        self.steps: list[tuple[float, float]] = []

    def _inputs(self, name: str, classes: int) -> list[tf.Tensor]:
        """The images and labels of the next tower, by the global step."""
        del name, classes
        tower, self._towers = self._towers, self._towers + 1
        return [
            tf.numpy_function(
                lambda step, array=self._batches[part]: array[step, tower],
                [tf.train.get_global_step()],
                dtype,
            )
            for part, dtype in (("images", tf.float32), ("labels", tf.int32))
        ]

    def benchmark_with_session(self, sess: tf.Session, supervisor: Any, *others: Any):
        """Takes the steps, records them, and saves the variables between them."""

        def save() -> None:
            if len(self.steps) in self._saved:
                path = os.path.join(self._folder, "model.ckpt")
                saver = supervisor.saver
                saver.save(sess, path, supervisor.global_step, write_meta_graph=False)
                saver.set_last_checkpoints([])  # which a saver deletes, by default

        save()
        rate = next(
            op.outputs[0]
            for op in sess.graph.get_operations()
            if op.name.rpartition("/")[2] == _RATE
        )
        one_step = benchmark_cnn.benchmark_one_step

        def recorded(sess: tf.Session, *others: Any, **options: Any):
            rate_here = sess.run(rate)
            summary, loss = one_step(sess, *others, **options)
            self.steps.append((float(loss), float(rate_here)))
            save()
            return summary, loss

        with mock.patch.object(benchmark_cnn, "benchmark_one_step", recorded):
            return super().benchmark_with_session(sess, supervisor, *others)


def _no_dropout(network: Any, *others: Any, **options: Any) -> tf.Tensor:
    del others, options
    return network.top_layer


def run(
    flags: Mapping[str, Any],
    batches: str,
    folder: str,
    *,
    dropout: bool,
    saved: Collection[int],
) -> None:
    """One run; the arguments are those of the module's docstring."""
    os.makedirs(folder)
    params = benchmark_cnn.make_params(**flags, display_every=1, use_resource_vars=True)
    params = benchmark_cnn.setup(params)
    builder = convnet_builder.ConvNetBuilder
    layer = builder.dropout if dropout else _no_dropout
    with mock.patch.object(builder, "dropout", layer):
        with np.load(batches) as arrays:
            given = GivenBatches(params, dict(arrays), saved, folder)
        given.run()
    with open(os.path.join(folder, "steps.json"), "w", encoding="utf-8") as file:
        json.dump(given.steps, file)


def main() -> None:
    """All runs."""
    tf.disable_v2_behavior()
    cnn_util.log_fn("TensorFlow " + tf.__version__)
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = json.load(file)
    for number, arguments in enumerate(runs, start=1):
        run(**arguments)
        print(f"run {number} is done", flush=True)


if __name__ == "__main__":
    main()
