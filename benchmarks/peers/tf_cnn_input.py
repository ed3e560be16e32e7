"""The input pipeline of tf_cnn_benchmarks alone, for `benchmarks.input`.

    cd scripts/tf_cnn_benchmarks && PYTHONPATH=. python .../tf_cnn_input.py \
        FOLDER training 64 10 60

Its own preprocessor makes its own tf.data pipeline, with the settings of its flags'
defaults, for one device.  The arguments are the folder of ImageNet's TFRecords,
`training` or `evaluation` preprocessing, the batch size, and the numbers of batches to
read before and while the time is taken.

Its modules have names of packages of this project, so this file is run as a program and
imports nothing from here.
"""

import sys
import time

import benchmark_cnn
import datasets
import tensorflow.compat.v1 as tf

_SIDE = 224  # pixels, of resnet50


def input_batches(folder: str, kind: str, batch_size: int) -> list[tf.Tensor]:
    """The next batch of training files: images and labels.

    Args:
      folder: of the TFRecords.
      kind: of preprocessing.
      batch_size: examples in a batch.
    """
    params = benchmark_cnn.make_params(data_dir=folder, device="cpu")
    dataset = datasets.create_dataset(folder, "imagenet")
    make = dataset.get_input_preprocessor(params.input_preprocessor)
    preprocessor = make(
        batch_size,
        [[batch_size, _SIDE, _SIDE, 3], [batch_size]],
        1,
        dtype=tf.float32,
        train=kind == "training",
        distortions=params.distortions,
        resize_method=params.resize_method,
        distort_color_in_yiq=params.distort_color_in_yiq,
        fuse_decode_and_crop=params.fuse_decode_and_crop,
    )
    images, labels = preprocessor.minibatch(dataset, subset="train", params=params)
    return [*images, *labels]


def main() -> None:
    """Prints the images per second."""
    tf.disable_v2_behavior()
    folder, kind, *numbers = sys.argv[1:]
    batch_size, warmup, count = map(int, numbers)
    following = [tensor.op for tensor in input_batches(folder, kind, batch_size)]
    with tf.Session() as session:
        session.run(tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS))
        read = session.make_callable(following)
        for _ in range(warmup):
            read()
        begun = time.perf_counter()
        for _ in range(count):
            read()
        seconds = time.perf_counter() - begun
    print(f"total images/sec: {batch_size * count / seconds:.2f}", flush=True)


if __name__ == "__main__":
    main()
