"""The index of TFRecords: any record at once, kept for the next run."""

import math
import os
from unittest import mock

import numpy as np
import tensorflow as tf

from towers.data import record_index
from towers.data.record_index import RecordIndex

v1 = tf.compat.v1


class RecordIndexTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.create_tempdir().full_path
        self.names = [os.path.join(self.folder, f"part-{n}") for n in range(3)]
        self.records = [
            [b"%d-%d" % (file, n) * (1 + n * 7 % 5) for n in range(count)]
            for file, count in enumerate((4, 0, 3))
        ]
        for name, records in zip(self.names, self.records):
            self.write(name, records)

    def write(self, name, records):
        with tf.io.TFRecordWriter(name) as file:
            for record in records:
                file.write(record)

    def read(self, index, numbers):
        with tf.Graph().as_default(), v1.Session() as session:
            number = v1.placeholder(tf.int64, [])
            both = index.read(number), index.place(number)
            return [session.run(both, {number: n}) for n in numbers]

    def test_each_record_by_its_number(self):
        index = RecordIndex(self.names)
        self.assertEqual(index.count, 7)
        wanted = [r for records in self.records for r in records]
        places = [(n, 0) for n in range(4)] + [(n, 2) for n in range(3)]
        for number, (record, place) in zip(
            (6, 0, 3, 4), self.read(index, (6, 0, 3, 4))
        ):
            self.assertEqual(record, wanted[number])
            of_file, file = places[number]
            name = self.names[file]
            self.assertEqual(
                place.decode(), f"record {of_file}, counted from 0, of {name}"
            )
            self.assertEqual(index.where(number), f"record {of_file} of {name}")

    def test_parts_of_files(self):
        index = RecordIndex([self.names[0], self.names[2]], [(1, 2), (2, -1)])
        records = [record for record, _ in self.read(index, range(3))]
        self.assertEqual(records, [*self.records[0][1:3], self.records[2][2]])
        self.assertEqual(index.where(2), f"record 2 of {self.names[2]}")

    def test_streamed_places_are_the_same(self):
        for name in self.names:
            self.assertAllEqual(
                record_index._streamed_offsets(name), record_index._offsets(name)
            )

    def test_the_places_are_kept_until_a_file_changes(self):
        kept = os.path.join(self.folder, "train.npz")
        first = RecordIndex(self.names, kept=kept)
        with np.load(kept) as stored:
            changed = {**stored, "offsets": stored["offsets"][::-1].copy()}
        np.savez(kept, **changed)
        self.assertAllEqual(
            RecordIndex(self.names, kept=kept)._offsets, first._offsets[::-1]
        )
        self.write(self.names[1], [b"new"])
        with mock.patch.object(record_index, "_offsets", wraps=record_index._offsets):
            index = RecordIndex(self.names, kept=kept)
            self.assertEqual(
                record_index._offsets.call_args_list, [((self.names[1],),)]
            )
        self.assertEqual(index.count, 8)
        self.assertEqual(self.read(index, [4])[0][0], b"new")
        with open(kept, "wb") as file:
            file.write(b"something else")
        self.assertEqual(RecordIndex(self.names, kept=kept).count, 8)

    def test_parts_of_a_folder_are_kept_together(self):
        kept = os.path.join(self.folder, "kept.npz")
        for part in (self.names[:1], self.names[1:]):
            RecordIndex(part, kept=kept)
        with mock.patch.object(record_index, "_offsets", side_effect=AssertionError):
            index = RecordIndex(self.names, kept=kept)
        self.assertAllEqual(index._offsets, RecordIndex(self.names)._offsets)

    def test_a_file_with_too_few_records(self):
        with self.assertRaisesRegex(ValueError, "^part-2 has 3 of 4 records$"):
            RecordIndex(self.names, [(0, 4), (0, 0), (1, 3)])

    def test_functions_hold_no_places(self):
        """They would be copied with each function of tf.data."""
        index = RecordIndex(self.names)
        with tf.Graph().as_default() as graph:
            numbers = tf.data.Dataset.range(7)
            v1.data.make_initializable_iterator(numbers.map(index.read))
            functions = graph.as_graph_def().library.function
        constants = [n for f in functions for n in f.node_def if n.op == "Const"]
        sizes = [n.attr["value"].tensor.tensor_shape.dim for n in constants]
        self.assertNotEmpty(constants)
        self.assertLess(max(math.prod(d.size for d in size) for size in sizes), 3)

    def test_a_file_that_ends_within_a_record(self):
        with open(self.names[2], "r+b") as file:
            file.truncate(os.path.getsize(self.names[2]) - 3)
        with self.assertRaisesRegex(ValueError, f"record 2 of {self.names[2]} is not"):
            RecordIndex(self.names)
