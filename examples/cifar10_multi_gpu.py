"""TensorFlow's CIFAR-10 multi-GPU tutorial, whole, in this project's words.

    python examples/cifar10_multi_gpu.py

The tutorial (`cifar10_multi_gpu_train.py`) builds one tower per GPU in a Python loop,
averages the gradients on the CPU, and applies them. This program has all of its parts:
the network, the towers, `average_gradients`, the moving averages and the loop. Comments
name the tutorial's functions. The images are random, so that no download is needed.
This trains on CIFAR-10:

    python -m towers.train --model=cifar10_tutorial --data_name=cifar10 --num_gpus=2
"""

import numpy as np
import tensorflow as tf

import models
from towers import graph
from towers.data import inputs
from towers.layout import placement
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.session import loop

NUM_GPUS = 2
BATCH_SIZE = 16  # per tower; the tutorial has 128
STEPS = 12


def main() -> None:
    """Builds the graph of the tutorial, shows its parts, and trains."""
    # inputs() of the tutorial: here any arrays; images are cropped to 24 x 24.
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (256, 32, 32, 3), np.uint8)
    labels = rng.integers(0, 10, 256)
    # inference() and loss(): the blocks and the loss of the model.
    model = models.get("cifar10_tutorial")
    print("blocks:", ", ".join(name for name, _ in model.blocks))
    request = inputs.Request(
        shape=model.inputs.shape, preprocessing=model.inputs.preprocessing
    )
    # tf.device('/gpu:%d'): tower i is pinned to device i, variables to the CPU.
    devices = placement.local(NUM_GPUS, kind="cpu")
    train = graph.build(
        model,
        inputs.from_arrays(images, labels, num_classes=10, request=request),
        # train(): plain gradient descent, and moving averages of all variables.
        Update("sgd", Piecewise((0.1,)), ema_decay=0.9999),
        placement=devices,
        # tower_loss() and average_gradients(): one tower per device, and their mean.
        options=graph.Options(
            batch_size=BATCH_SIZE, variable_update="parameter_server"
        ),
    )
    for tower in train.towers:
        print(f"tower_{tower.index}: {len(tower.gradients)} gradients")
    print("moving averages:", len(train.averages))
    config = placement.session_config(devices)
    with tf.compat.v1.Session(graph=train.graph, config=config) as session:
        loop.start(train, session, restore=lambda session: None)
        for last_step in range(4, STEPS + 1, 4):
            loop.run(train, session, hooks=[], last_step=last_step)
            print(f"step {last_step}, loss = {session.run(train.loss):.2f}")


if __name__ == "__main__":
    main()
