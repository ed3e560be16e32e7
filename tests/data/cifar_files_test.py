"""CIFAR as downloaded: pickles and binary files."""

import os

from absl.testing import parameterized

from tests import make_imagenet
from tests.image_folders import ImageFoldersTestCase, decoded
from towers.data import image_layouts


class CifarFilesTest(ImageFoldersTestCase):
    @parameterized.parameters(
        ("cifar10", 10, 100), ("cifar100", 100, 20), ("cifar10_binary", 10, 100)
    )
    def test_cifar(self, layout, num_classes, num_examples):
        folder = self.folder(layout)
        name = layout.removesuffix("_binary")
        for split, count, seed in (("train", num_examples, 0), ("test", 20, -1)):
            records = image_layouts.find(name, splits=(split,), data_dir=folder)
            self.assertEqual(
                (records.num_classes, records.num_examples), (num_classes, count)
            )
            last = {"cifar10": 5, "cifar100": 1}[name]
            images, labels = make_imagenet.cifar_rows(20, seed if seed >= 0 else last)
            for number, (image, label) in enumerate(decoded(records, 20)):
                planes = images[number].reshape(3, 32, 32)
                self.assertAllEqual(image, planes.transpose(1, 2, 0))
                self.assertEqual(label, labels[number])

    def test_wrong_labels_and_sizes(self):
        folder = self.folder("cifar10_binary")
        path = f"{folder}/data_batch_3.bin"
        for change, words in (
            (
                lambda file: (file.seek(7 * 3073), file.write(b"\x0a")),
                "image 7, .* 10, ",
            ),
            (lambda file: file.truncate(3072), "has 3072 bytes, and an image 3073"),
            (lambda file: file.truncate(0), "data_batch_3.bin is not whole: it has 0 "),
        ):
            with open(path, "r+b") as file:
                change(file)
            with self.assertRaisesRegex(ValueError, words):
                image_layouts.find("cifar10", splits=("train",), data_dir=folder)

    def test_a_pickle_that_calls_something_is_refused(self):
        folder = self.folder("cifar10")
        path = f"{folder}/cifar-10-batches-py/data_batch_2"
        with open(path, "wb") as file:
            file.write(b"\x80\x02cos\nsystem\nU\x07touch xq\x00\x85R.")
        with self.assertRaisesRegex(ValueError, "data_batch_2 is not a .*calls os.sys"):
            image_layouts.find("cifar10", splits=("train",), data_dir=folder)
        os.remove(path)
        with self.assertRaisesRegex(ValueError, "data_batch_2 is missing"):
            image_layouts.find("cifar10", splits=("train",), data_dir=folder)
