"""Faults in `towers/data/`: positions, seeds, masks, windows, distortions."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/data/stream.py",
        (
            "first = position + step * share.step + share.first",
            "first = position + step * share.step",
            "stream_test::test_hosts_share",
        ),
        (
            "done = tf.where(tf.equal(epoch, begun), position % num_examples, 0)",
            "done = position % num_examples",
            "stream_test::test_begins_anywhere",
        ),
        (
            "epoch_of(tf.stack([self.seed, epoch]))",
            "epoch_of(tf.stack([self.seed, begun]))",
            "stream_test::test_every_epoch_is_whole",
        ),
        (
            "epoch_of(tf.stack([self.seed, epoch]))",
            "epoch_of(tf.stack([tf.zeros_like(epoch), epoch]))",
            "stream_test::test_the_seed_makes",
        ),
        (
            "draws = example_uniform((count, DRAWS), seed=self.seed, first=first)",
            "draws = example_uniform((count, DRAWS), seed=self.seed, first=0)",
            "stream_test::test_hosts_share stream_test::test_both_ways",
        ),
        (
            "indexed = indexed.enumerate(start=position)",
            "indexed = indexed.enumerate()",
            "stream_test::test_begins_anywhere",
        ),
        (
            "return (row >= share.first) & (row < end)",
            "return (row >= share.first) & (row <= end)",
            "stream_test::test_hosts_share",
        ),
        (
            "dataset = dataset.apply(tf.data.experimental.assert_cardinality(n))",
            "",
            "stream_test::test_an_epoch_of_another_length",
        ),
    ),
    *of_file(
        "towers/data/feed.py",
        (
            "tf.cast(indices < limit, tf.float32)",
            "tf.cast(indices <= limit, tf.float32)",
            "feed_test::test_examples_from_the_limit",
        ),
        (
            "left = limit - (first - part.index * rows)",
            "left = limit - first",
            "feed_test::test_what_all_parts",
        ),
        (
            "total = rows * part.count",
            "total = rows",
            "feed_test::test_what_all_parts",
        ),
        (
            "return Batch(features, labels, weights, indices[0])",
            "return Batch(features, labels, weights, indices[-1])",
            "inputs_test::test_the_stream equivalence_test::test_any_number_of_towers",
        ),
    ),
    *of_file(
        "towers/data/inputs.py",
        (
            "before = part.index * rows + sum(sizes[:index])",
            "before = part.index * rows",
            "inputs_test::test_the_stream",
        ),
        (
            "share = Share(part.count * rows, before, sizes[index])",
            "share = Share(rows, before, sizes[index])",
            "inputs_test::test_parts_of_a_step",
        ),
        (
            "augment=training and request.augment,",
            "augment=training,",
            "inputs_test::test_distortions_can",
        ),
        (
            "with tf.control_dependencies([start]):",
            "with tf.control_dependencies([]):",
            "inputs_test::test_the_stream",
        ),
        ("shuffle=training,", "shuffle=True,", "inputs_test"),
    ),
    *of_file(
        "towers/data/staging.py",
        (
            "[tf.raw_ops.StageClear(dtypes=dtypes, **area)]",
            "[]",
            "staging_test",
        ),
    ),
    *of_file(
        "towers/data/preprocessing.py",
        (
            "tf.constant(salt, tf.int64)])",
            "tf.constant(0, tf.int64)])",
            "preprocessing_test::test_seed_and_salt",
        ),
        (
            "counter = tf.stack([tf.cast(first, tf.int64) * blocks,",
            "counter = tf.stack([tf.cast(first, tf.int64),",
            "preprocessing_test::test_rows_belong",
        ),
        (
            "_CIFAR_DEVIATION = (63.0, 62.1, 66.7)",
            "_CIFAR_DEVIATION = (63.0, 66.7, 62.1)",
            "preprocessing_test::test_cifar_evaluation",
        ),
        (
            "tf.cast(draws[:, axis] * (have - want + 1), tf.int32)",
            "tf.cast(draws[:, axis] * (have - want), tf.int32)",
            "preprocessing_test",
        ),
        (
            "numbers.append(offsets[:, None] + tf.range(want))",
            "numbers.append(offsets[:1, None] + tf.range(want))",
            "preprocessing_test",
        ),
        (
            "columns = tf.where(mirror, tf.reverse(columns, [1]), columns)",
            "",
            "preprocessing_test::test_cifar_training",
        ),
        (
            "_IMAGENET_CENTRE = 0.875",
            "_IMAGENET_CENTRE = 0.9",
            "preprocessing_test::test_imagenet_evaluation_of",
        ),
        (
            "(_TUTORIAL_BRIGHTNESS, 3), (_TUTORIAL_CONTRAST, 4)",
            "(_TUTORIAL_BRIGHTNESS, 4), (_TUTORIAL_CONTRAST, 3)",
            "preprocessing_test::test_tutorial_training",
        ),
        (
            "x * (2 / dtype.max) - 1.0",
            "x * (1 / dtype.max)",
            "preprocessing_test::test_scale",
        ),
        (
            "drawn = tf.minimum(drawn, items - 1)",
            "drawn = tf.minimum(drawn, items - 2)",
            "preprocessing_test::test_items_are_drawn",
        ),
    ),
    *of_file(
        "towers/data/records.py",
        (
            "fits = (label >= 0) & (label < num_classes)",
            "fits = (label >= 0) & (label <= num_classes)",
            "records_test::test_a_label_out_of_range",
        ),
        (
            "columns = tuple(tf.gather(column, order) for column in columns)",
            "",
            "records_test::test_the_order_is_a_function",
        ),
        (
            ".skip(skip).take(take)",
            ".take(take)",
            "records_test::test_a_part_of_a_split",
        ),
    ),
    *of_file(
        "towers/data/text.py",
        (
            "start, stop = bounds(max(0, part.stop - part.start - 1) // length)",
            "start, stop = bounds(max(0, part.stop - part.start) // length)",
            "text_test::test_every_byte text_test::test_a_text_that_is_too_short",
        ),
        (
            "part.path, length, begin + later, end - later",
            "part.path, length, begin, end",
            "text_test::test_every_byte",
        ),
        (
            "start, stop = bounds(max(0, len(tokens) - 1) // length)",
            "start, stop = bounds(max(0, len(tokens) - 1) // length - 1)",
            "text_test::test_slices_count_windows_of_words",
        ),
        (
            'words = vocabulary(_cut(splits("train") or part), request.num_classes)',
            "words = vocabulary(_cut(part), request.num_classes)",
            "text_test::test_validation_is_told",
        ),
        (
            "key=lambda word: (-counts[word], word)",
            "key=lambda word: (counts[word], word)",
            "text_test::test_words_are_numbered",
        ),
        (
            "begin = part.start + (start + first) * length",
            "begin = part.start + first * length",
            "text_test::test_slices_count_windows_of_a_single",
        ),
    ),
    *of_file(
        "towers/data/text_splits.py",
        (
            '"validation": Part(os.fspath(path), cut, size),',
            '"validation": Part(os.fspath(path), 0, size),',
            "text_test::test_every_byte",
        ),
        ('between = b"\\n"', 'between = b""', "text_test::test_a_tfds_data_set"),
    ),
    *of_file(
        "towers/data/ratings.py",
        (
            "drawn = drawn[~np.isin(drawn, rated)]",
            "",
            "ratings_test::test_validation",
        ),
        (
            "np.lexsort((item, time, user))",
            "np.lexsort((time, item, user))",
            "ratings_test",
        ),
        (
            "rest = np.delete(np.stack([user, item], axis=1), ends - 1, axis=0)",
            "rest = np.stack([user, item], axis=1)",
            "ratings_test::test_training",
        ),
        (
            "labels = tf.one_hot(0, 1 + _EVAL_NEGATIVES, dtype=tf.int32)",
            "labels = tf.one_hot(1, 1 + _EVAL_NEGATIVES, dtype=tf.int32)",
            "ratings_test::test_validation",
        ),
    ),
    *of_file(
        "towers/data/synthetic.py",
        (
            "before = part.index * own + len(batches) * batch_size",
            "before = part.index * own",
            "synthetic_test::test_rows_do_not_depend",
        ),
        (
            "return tokens[:, :-1], tokens[:, 1:]",
            "return tokens[:, 1:], tokens[:, :-1]",
            "synthetic_test::test_tokens_are_followed",
        ),
        (
            "now, start = _counter(position, part.count * own)",
            "now, start = _counter(position, own)",
            "synthetic_test clients_cluster_test",
        ),
    ),
    *of_file(
        "towers/data/digits.py",
        ("[_HOLD_OUT - 1 :: _HOLD_OUT]", "[:: _HOLD_OUT]", "digits_test"),
        ("(255 / 16)", "(256 / 16)", "digits_test::test_images_use"),
    ),
    *of_file(
        "towers/data/evaluation.py",
        (
            "at_end = in_epochs if flags.eval_at_end is None else flags.eval_at_end",
            "at_end = in_epochs or flags.eval_at_end",
            "evaluation_test::test_wanted",
        ),
        ("if asked and not real:", "if asked and real:", "evaluation_test"),
    ),
    *of_file(
        "towers/data/room.py",
        ("if examples >= _INT_LIMIT:", "if examples > _INT_LIMIT:", "room_test"),
        (
            "step * (1 + prefetch) > memory:",
            "step > memory:",
            "room_test::test_refuses",
        ),
    ),
]
