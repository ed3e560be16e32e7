"""Writes small fake data sets in the layouts of real ones, from two photographs.

python -m tests.make_imagenet DIR
python -m tests.make_imagenet DIR --images=1024 --width=500 --height=375 --quality=95

DIR gets the folders tfrecords, folders, tfds, cifar10, ptb, lm1b, movielens and others.
The photographs are those that scikit-learn ships (the extra `examples`).
"""

import argparse
import itertools
import pathlib
import pickle
import sys
from collections.abc import Mapping, Sequence
from importlib import resources

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from sklearn import datasets

_SHARDS = {"train": 4, "validation": 2}
_CLASSES = 4
_SYNSETS = ("n01440764", "n01443537", "n01484850", "n01491361")
_LINES = "the cat sat on the mat \n the dog ate the cat 's fish \n" * 40


def photographs(count: int, height: int, width: int, seed: int = 0) -> list[np.ndarray]:
    """Random parts of two photographs, uint8 [height, width, 3] each."""
    rng = np.random.default_rng(seed)
    # Not datasets.load_sample_images, which needs Pillow.
    folder = resources.files(datasets) / "images"
    whole = [
        tf.io.decode_jpeg((folder / f"{name}.jpg").read_bytes()).numpy()
        for name in ("china", "flower")
    ]
    parts = []
    for number in range(count):
        photo = whole[number % 2]
        share = rng.uniform(0.4, 1.0)
        tall, wide = (int(share * size) for size in photo.shape[:2])
        top, left = (
            int(rng.integers(0, n - m + 1)) for n, m in zip(photo.shape, (tall, wide))
        )
        part = tf.image.resize(
            photo[top : top + tall, left : left + wide], [height, width]
        )
        parts.append(np.round(part.numpy()).astype(np.uint8))
    return parts


def jpegs(
    count: int, height: int, width: int, seed: int = 0, quality: int = 90
) -> list[bytes]:
    """JPEG files of `photographs`."""
    parts = photographs(count, height, width, seed)
    return [tf.io.encode_jpeg(part, quality=quality).numpy() for part in parts]


def example(image: bytes, label: int, boxes: Sequence[Sequence[float]] = ()) -> bytes:
    """A record as build_imagenet_data writes it.

    Args:
      image: a JPEG file.
      label: from 1.
      boxes: (top, left, bottom, right) each, as shares of height and width.
    """

    def floats(values: Sequence[float]) -> tf.train.Feature:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    feature = {
        "image/encoded": _bytes(image),
        "image/class/label": _integer(label),
    }
    for place, side in enumerate(("ymin", "xmin", "ymax", "xmax")):
        feature[f"image/object/bbox/{side}"] = floats([box[place] for box in boxes])
    features = tf.train.Features(feature=feature)
    return tf.train.Example(features=features).SerializeToString()


def write_tfrecords(
    folder: pathlib.Path, images: Sequence[bytes], split: str, shards: int
) -> None:
    """Writes the TFRecords of a split; the labels are 1, 2, 3, 4, 1, ..."""
    records = [
        example(image, 1 + number % _CLASSES, [(0.2, 0.3, 0.7, 0.8)] * (number % 3))
        for number, image in enumerate(images)
    ]
    write_shards(folder, split, records, shards)


def write_shards(
    folder: pathlib.Path, name: str, records: Sequence[bytes], shards: int
) -> list[int]:
    """Writes records to files; returns how many are in each."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = [shard * len(records) // shards for shard in range(shards + 1)]
    for shard, (begin, end) in enumerate(itertools.pairwise(ends)):
        path = folder / f"{name}-{shard:05d}-of-{shards:05d}"
        with tf.io.TFRecordWriter(str(path)) as file:
            for record in records[begin:end]:
                file.write(record)
    return [end - begin for begin, end in itertools.pairwise(ends)]


def write_tfds(folder: pathlib.Path, images: Mapping[str, Sequence[bytes]]) -> None:
    """Writes `imagenet2012` as TFDS prepares it; the labels are 0, 1, 2, 3, 0, ...

    Args:
      folder: as `--data_dir` names it.
      images: JPEG files of each split.
    """
    inside, infos = folder / "imagenet2012" / "5.1.0", []
    for split, files in images.items():
        records = [
            tf.train.Example(
                features=tf.train.Features(
                    feature={
                        "image": _bytes(image),
                        "label": _integer(number % _CLASSES),
                        "file_name": _bytes(b"%d.JPEG" % number),
                    }
                )
            ).SerializeToString()
            for number, image in enumerate(files)
        ]
        name = f"imagenet2012-{split}.tfrecord"
        lengths = write_shards(inside, name, records, _SHARDS[split])
        infos.append(
            tfds.core.SplitInfo(name=split, shard_lengths=lengths, num_bytes=0)
        )
    tfds.folder_dataset.write_metadata(
        data_dir=str(inside),
        features=tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(encoding_format="jpeg"),
                "label": tfds.features.ClassLabel(num_classes=1000),
                "file_name": tfds.features.Text(),
            }
        ),
        split_infos=infos,
        supervised_keys=("image", "label"),
        check_data=False,
    )


def _bytes(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _integer(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def write_folders(folder: pathlib.Path, images: Sequence[bytes], split: str) -> None:
    """Writes a folder of images for each class."""
    for number, image in enumerate(images):
        inside = folder / split / _SYNSETS[number % _CLASSES]
        inside.mkdir(parents=True, exist_ok=True)
        (inside / f"{number:05d}.JPEG").write_bytes(image)


def cifar_rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [count, 3072], channels first, and labels uint8 [count]."""
    images = np.stack(photographs(count, 32, 32, seed))
    labels = np.arange(count, dtype=np.uint8) % 10
    return images.transpose(0, 3, 1, 2).reshape(count, -1), labels


def write_cifar(folder: pathlib.Path, count: int) -> None:
    """Writes CIFAR-10 and CIFAR-100, each as pickles and binary files."""
    for name, batches in (
        ("cifar10", [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]),
        ("cifar100", ["train", "test"]),
    ):
        ten = name == "cifar10"
        inside = "cifar-10-batches-py" if ten else "cifar-100-python"
        for seed, batch in enumerate(batches):
            rows, labels = cifar_rows(count, seed)
            keys = {
                b"data": rows,
                b"labels" if ten else b"fine_labels": labels.tolist(),
            }
            path = folder / name / inside / batch
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(keys, protocol=2))
            columns = (
                [labels[:, None]] if ten else [labels[:, None] // 5, labels[:, None]]
            )
            binary = folder / f"{name}_binary" / f"{batch}.bin"
            binary.parent.mkdir(parents=True, exist_ok=True)
            np.concatenate([*columns, rows], axis=1).tofile(binary)


def write_texts(folder: pathlib.Path) -> None:
    """Writes texts in the layouts of PTB and LM1B."""
    ptb = folder / "ptb"
    ptb.mkdir(parents=True, exist_ok=True)
    for kind in ("ptb", "ptb.char"):
        for split in ("train", "valid", "test"):
            (ptb / f"{kind}.{split}.txt").write_text(_LINES)
    for inside, name, total in (
        ("training-monolingual.tokenized.shuffled", "news.en", 3),
        ("heldout-monolingual.tokenized.shuffled", "news.en.heldout", 2),
    ):
        (folder / "lm1b" / inside).mkdir(parents=True, exist_ok=True)
        for shard in range(total):
            file = f"{name}-{shard:05d}-of-{total:05d}"
            (folder / "lm1b" / inside / file).write_text(f"shard {shard} \n{_LINES}")


def write_ratings(folder: pathlib.Path, users: int = 12, items: int = 200) -> None:
    """Writes the same ratings as each of MovieLens' files."""
    rng = np.random.default_rng(0)
    rows = [
        (user, 1 + int(item), 1 + int(item) % 5, 1000 + time)
        for user in range(1, users + 1)
        for time, item in enumerate(rng.permutation(items)[: 15 + user])
    ]
    for name, between, head in (
        ("ml-1m/ratings.dat", "::", ""),
        ("ml-100k/u.data", "\t", ""),
        ("ml-latest/ratings.csv", ",", "userId,movieId,rating,timestamp\n"),
    ):
        path = folder / "movielens" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [between.join(map(str, row)) for row in rows]
        path.write_text(head + "\n".join(lines) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Writes all layouts; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.make_imagenet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=64, help="for training")
    parser.add_argument("--height", type=int, default=120)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--quality", type=int, default=90, help="of the JPEGs")
    options = parser.parse_args(argv)
    images = {}
    for split, shards in _SHARDS.items():
        count = options.images if split == "train" else max(options.images // 4, shards)
        size = options.height, options.width
        images[split] = jpegs(count, *size, shards, options.quality)
        write_tfrecords(options.folder / "tfrecords", images[split], split, shards)
        write_folders(options.folder / "folders", images[split], split)
    write_tfds(options.folder / "tfds", images)
    write_cifar(options.folder, 20)
    write_texts(options.folder)
    write_ratings(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
