"""A loop of tf.data that only decodes and crops JPEGs, for `benchmarks.input`.

    python -m benchmarks.peers.bare_input FOLDER training 64 10 60

It reads the same TFRecords.  For training it draws a crop as tf_cnn_benchmarks does and
decodes that part alone; for evaluation it decodes the image and cuts out the centre.
It does not resize, mirror or scale crops, nor copy them into a batch.  With --resize it
resizes them to 224 x 224 pixels and puts them into batches, as every pipeline
must.  The other arguments are those of `tf_cnn_input`.
"""

import glob
import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from benchmarks.peers import peer

v1 = tf.compat.v1

_CENTRE = 0.875  # of the shorter side
_SIDE = 224  # pixels, of resnet50


def crop_at_random(image: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """A random part of a JPEG, uint8 [height, width, 3]."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(image),
        tf.zeros([1, 0, 4]),
        tf.stack([number, 0]),
        min_object_covered=0.1,
        aspect_ratio_range=(0.75, 1.33),
        area_range=(0.05, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], size[:2]], 0)
    return tf.image.decode_and_crop_jpeg(image, window, channels=3)


def crop_centre(image: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """The central square of a JPEG, uint8 [side, side, 3]."""
    del number
    pixels = tf.io.decode_jpeg(image, 3, dct_method="INTEGER_FAST")
    size = tf.shape(pixels)[:2]
    side = tf.cast(_CENTRE * tf.cast(tf.reduce_min(size), tf.float32), tf.int32)
    begin = (size - side) // 2
    return tf.slice(pixels, tf.concat([begin, [0]], 0), tf.stack([side, side, 3]))


_CROPS = {"training": crop_at_random, "evaluation": crop_centre}


def crops(
    folder: str, kind: str, prepare: Callable[[tf.Tensor], tf.Tensor] = tf.identity
) -> tf.data.Dataset:
    """One crop after another, without end, as `prepare` makes it."""
    parsed = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}

    def crop(number: tf.Tensor, record: tf.Tensor) -> tf.Tensor:
        image = tf.io.parse_single_example(record, parsed)["image/encoded"]
        return prepare(_CROPS[kind](image, number))

    files = sorted(glob.glob(os.path.join(folder, "train-*")))
    records = tf.data.TFRecordDataset(files).repeat().enumerate()
    return records.map(crop, num_parallel_calls=tf.data.AUTOTUNE)


def resized(crop: tf.Tensor) -> tf.Tensor:
    """The crop in the size of the network, float32 [224, 224, 3]."""
    image = v1.image.resize_images(crop, [_SIDE, _SIDE])
    return tf.ensure_shape(image, [_SIDE, _SIDE, 3])


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the images per second."""
    parser = peer.input_parser("peers.bare_input", __doc__, _CROPS)
    parser.add_argument("--resize", action="store_true", help="resize, make batches")
    arguments = parser.parse_args(argv)
    prepare = resized if arguments.resize else tf.shape
    with tf.Graph().as_default(), v1.Session() as session:
        images = crops(arguments.folder, arguments.kind, prepare)
        batches = images.batch(arguments.batch_size).prefetch(1)
        iterator = v1.data.make_initializable_iterator(batches)
        session.run(iterator.initializer)
        read = session.make_callable(iterator.get_next().op)
        print(peer.input_line(arguments, read), flush=True)


if __name__ == "__main__":
    main()
