"""Parquet files that a real Spark wrote, read by `from_parquet`."""

import importlib.util
import os
import shutil
import subprocess
import sys

import tensorflow as tf

from towers.data.tables import from_parquet

v1 = tf.compat.v1

_WRITE = """
import sys
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession, functions as F

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", False)
    .config("spark.driver.host", "127.0.0.1").getOrCreate()
)
rows = [
    (i, None if i % 3 else i / 2, "ab"[i % 2], [float(i), 1.0], (i, i), i > 3,
     Vectors.dense([i, 2.0]), "mon" if i < 4 else "tue")
    for i in range(8)
]
names = ["id", "half", "word", "pair", "nest", "big", "vector", "day"]
frame = spark.createDataFrame(rows, names).withColumn(
    "narrow", F.col("id").cast("byte")
).withColumn("exact", F.col("id").cast("decimal(9,2)"))
frame = frame.withColumn("array", vector_to_array("vector"))
frame.repartition(3).write.partitionBy("day").parquet(sys.argv[1])
spark.stop()
"""


class SparkFilesTest(tf.test.TestCase):
    def test_each_column_is_read_or_its_remedy_named(self):
        if importlib.util.find_spec("pyspark") is None or not shutil.which("java"):
            self.skipTest("pyspark or Java is not installed")
        path = os.path.join(self.create_tempdir().full_path, "written")
        subprocess.run(
            [sys.executable, "-c", _WRITE, path],
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            check=True,
            capture_output=True,
        )
        self.assertGreater(sum(len(files) for _, _, files in os.walk(path)), 4)

        columns = ("id", "half", "pair", "big", "narrow", "exact", "array", "word")
        data = from_parquet([path], columns, "day", fill={"half": -1.0})
        self.assertEqual((data.num_examples, data.num_classes), (8, 2))
        with tf.Graph().as_default(), v1.Session() as session:
            features, day = session.run(data.read(tf.range(8, dtype=tf.int64)))
        number, half, pair, big, narrow, exact, array, word = features
        self.assertCountEqual(number, range(8))
        self.assertAllEqual(half, [-1 if i % 3 else i / 2 for i in number])
        self.assertAllEqual(pair, [[i, 1] for i in number])
        self.assertAllEqual(big, number > 3)
        self.assertAllEqual(narrow, number)
        self.assertAllEqual(exact, number)
        self.assertAllEqual(array, [[i, 2] for i in number])
        self.assertAllEqual(word, number % 2)
        self.assertAllEqual(day, number > 3)

        for column, words in (
            ("half", "'half' has no value in row"),
            ("vector", "'vector' is of struct<.*write vector_to_array"),
            ("nest", "'nest' is of struct<.*write its fields as columns"),
        ):
            with self.assertRaisesRegex(ValueError, f"^from_parquet: {words}"):
                from_parquet([path], column)
