"""Texts and ratings that are too large for memory: read by number from mapped files."""

import dataclasses
import os
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader, make_imagenet
from towers.data import inputs, order, ratings, text
from towers.data.source import ClientShare, Request

_WORDS = b" ".join(b"%d" % (n * n % 23) for n in range(400))

# Layout -> (request, split).
_TEXT = Request(shape=(5,), kind="tokens", preprocessing="bytes", num_classes=20)
_PAIRS = Request(shape=(2,), kind="pairs", preprocessing="pairs")
_CASES = {
    "bytes": (_TEXT, "train"),
    "a slice of bytes": (_TEXT, "train[7:90]"),
    "words": (dataclasses.replace(_TEXT, preprocessing="words"), "train"),
    "ratings": (_PAIRS, "train"),
    "candidates": (_PAIRS, "validation"),
}


class MappedTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        folder = pathlib.Path(self.create_tempdir().full_path)
        self._text = folder / "train.txt"
        self._text.write_bytes(_WORDS)
        make_imagenet.write_ratings(folder)
        self._ratings = os.fspath(folder / "movielens" / "ml-1m")

    def _sources(self, case):
        """Sources of the same examples: mapped, and kept in memory."""
        request, split = _CASES[case]
        if request.kind == "pairs":
            records = ratings.find_ratings(self._ratings, request, splits=(split,))
        else:
            folder = os.fspath(self._text.parent)
            records = text.find(folder, request, splits=(split,))
        training = split != "validation"
        return tuple(
            inputs.DatasetSource(records, request, training=training, memory=memory)
            for memory in (0, 2**28)
        )

    @parameterized.product(case=tuple(_CASES), layout=("1x12", "two_hosts"))
    def test_as_in_memory_from_any_position(self, case, layout):
        mapped, kept = self._sources(case)
        for position in (0, mapped.num_examples + 5):
            read, wanted = (
                batch_reader.read(source, 3, layout=layout, position=position)
                for source in (mapped, kept)
            )
            for part, other in zip(read, wanted):
                self.assertAllEqual(part, other)

    @parameterized.parameters("bytes", "words", "ratings")
    def test_a_resumed_run_reads_nothing_before_its_position(self, case):
        def opened(seed):
            raise AssertionError("the epoch is read from its beginning")

        source, _ = self._sources(case)
        records = source._stream.records._replace(open=opened)
        source._stream = dataclasses.replace(source._stream, records=records)
        batch_reader.read(source, 1, position=50)

    @parameterized.parameters("bytes", "words", "ratings")
    def test_an_old_checkpoint_goes_on_in_the_order_of_its_time(self, case):
        source, _ = self._sources(case)
        other, _ = self._sources(case)
        records = other._stream.records._replace(take=None)
        other._stream = dataclasses.replace(other._stream, records=records)
        old = batch_reader.read(other, 4, position=31)
        for version in (order.PERMUTED, order.KEYED, order.NUMBERED, order.MAPPED):
            part = ClientShare(order=np.int64(version))
            again = batch_reader.read(source, 4, position=31, part=part)
            same = all(np.array_equal(*p) for p in zip(again[:3], old[:3]))
            self.assertEqual(same, version < order.MAPPED)

    @parameterized.parameters("bytes", "words")
    def test_rows_of_a_stateful_model(self, case):
        mapped, kept = (source.in_rows(12) for source in self._sources(case))
        read, wanted = (
            batch_reader.read(source, 2, position=24) for source in (mapped, kept)
        )
        for part, other in zip(read, wanted):
            self.assertAllEqual(part, other)
