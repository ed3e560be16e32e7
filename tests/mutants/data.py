"""Faults in `towers/data/`: positions, seeds, masks, windows, distortions."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/data/stream.py",
        (
            "first = position + step * share.step + share.first",
            "first = position + step * share.step",
            "data/stream_test::test_hosts_share_the_rows_of_each_step",
        ),
        (
            "done = tf.where(tf.equal(epoch, begun), position % num_examples, 0)",
            "done = position % num_examples",
            "data/stream_test::test_begins_anywhere_and_again",
        ),
        (
            "epoch_of(tf.stack([self.seed, epoch]))",
            "epoch_of(tf.stack([self.seed, begun]))",
            "data/stream_test::test_every_epoch_is_whole_and_has_its_own_order",
        ),
        (
            "epoch_of(tf.stack([self.seed, epoch]))",
            "epoch_of(tf.stack([tf.zeros_like(epoch), epoch]))",
            "data/stream_test::test_the_seed_makes_the_order",
        ),
        (
            "draws = example_uniform((count, DRAWS), seed=self.seed, first=first)",
            "draws = example_uniform((count, DRAWS), seed=self.seed, first=0)",
            "data/stream_test::test_both_ways_hold_the_same_examples_and_distort_them_alike",
        ),
        (
            "indexed = indexed.enumerate(start=position)",
            "indexed = indexed.enumerate()",
            "data/stream_test::test_begins_anywhere_and_again",
        ),
        (
            "return (row >= share.first) & (row < end)",
            "return (row >= share.first) & (row <= end)",
            "data/stream_test::test_hosts_share_the_rows_of_each_step",
        ),
        (
            "dataset = dataset.apply(tf.data.experimental.assert_cardinality(n))",
            "",
            "data/stream_test::test_an_epoch_of_another_length_is_an_error",
        ),
    ),
    *of_file(
        "towers/data/source.py",
        (
            "tf.where(indices < limit, weights,",
            "tf.where(indices <= limit, weights,",
            "data/source_test::test_examples_from_the_limit_on_weigh_nothing",
        ),
        (
            "left = limit - (first - part.index * rows)",
            "left = limit - first",
            "data/source_test::test_what_all_parts_of_a_step_weigh",
        ),
        (
            "total = rows * part.count",
            "total = rows",
            "data/source_test::test_what_all_parts_of_a_step_weigh",
        ),
        (
            "return Batch(features, labels, weights, indices[0])",
            "return Batch(features, labels, weights, indices[-1])",
            "data/inputs_test::test_the_stream_is_that_of_one_tower",
        ),
    ),
    *of_file(
        "towers/data/stream_source.py",
        (
            "before = part.index * rows + sum(sizes[:index])",
            "before = part.index * rows",
            "data/inputs_test::test_the_stream_is_that_of_one_tower",
        ),
        (
            "share = HostShare(part.count * rows, before, sizes[index])",
            "share = HostShare(rows, before, sizes[index])",
            "data/inputs_test::test_parts_of_a_step_are_the_step",
        ),
        (
            "with tf.control_dependencies([start]):",
            "with tf.control_dependencies([]):",
            "data/inputs_test::test_the_stream_is_that_of_one_tower",
        ),
    ),
    *of_file(
        "towers/data/inputs.py",
        (
            "augment=training and request.augment,",
            "augment=training,",
            "data/inputs_test::test_distortions_can_be_left_out",
        ),
        (
            "shuffle=training,",
            "shuffle=True,",
            "data/inputs_test::test_distortions_can_be_left_out",
        ),
    ),
    *of_file(
        "towers/data/staging.py",
        (
            "[tf.raw_ops.StageClear(dtypes=dtypes, **area)]",
            "[]",
            "data/staging_test::test_hands_over_in_order_and_begins_anew",
        ),
    ),
    *of_file(
        "towers/data/preprocessing.py",
        (
            "_CIFAR_DEVIATION = (63.0, 62.1, 66.7)",
            "_CIFAR_DEVIATION = (63.0, 66.7, 62.1)",
            "data/preprocessing_test::test_cifar_evaluation",
        ),
        (
            "tf.cast(draws[:, axis] * (have - want + 1), tf.int32)",
            "tf.cast(draws[:, axis] * (have - want), tf.int32)",
            "data/preprocessing_test::test_cifar_training_crops_and_mirrors",
        ),
        (
            "numbers.append(offsets[:, None] + tf.range(want))",
            "numbers.append(offsets[:1, None] + tf.range(want))",
            "data/preprocessing_test::test_an_example_is_treated_the_same_in_any_batch",
        ),
        (
            "columns = tf.where(mirror, tf.reverse(columns, [1]), columns)",
            "",
            "data/preprocessing_test::test_cifar_training_crops_and_mirrors",
        ),
        (
            "_IMAGENET_CENTRE = 0.875",
            "_IMAGENET_CENTRE = 0.9",
            "data/preprocessing_test::test_imagenet_evaluation_of_the_usual_size_is_a_crop",
        ),
        (
            "(_TUTORIAL_BRIGHTNESS, 3), (_TUTORIAL_CONTRAST, 4)",
            "(_TUTORIAL_BRIGHTNESS, 4), (_TUTORIAL_CONTRAST, 3)",
            "data/preprocessing_test::test_tutorial_training",
        ),
        (
            "x * (2 / dtype.max) - 1.0",
            "x * (1 / dtype.max)",
            "data/preprocessing_test::test_scale",
        ),
        (
            "drawn = tf.minimum(drawn, items - 1)",
            "drawn = tf.minimum(drawn, items - 2)",
            "data/preprocessing_test::test_items_are_drawn_where_there_is_none",
        ),
    ),
    *of_file(
        "towers/data/records.py",
        (
            "fits = (label >= 0) & (label < num_classes)",
            "fits = (label >= 0) & (label <= num_classes)",
            "data/records_test::test_a_label_out_of_range_is_an_error_of_reading",
        ),
        (
            "columns = tuple(tf.gather(column, order) for column in columns)",
            "",
            "data/records_test::test_the_order_is_a_function_of_the_seed",
        ),
        (
            ".skip(skip).take(take)",
            ".take(take)",
            "data/records_test::test_a_part_of_a_split",
        ),
    ),
    *of_file(
        "towers/data/text.py",
        (
            "start, stop = bounds(max(0, part.stop - part.start - 1) // length)",
            "start, stop = bounds(max(0, part.stop - part.start) // length)",
            "data/text_test::test_every_byte_but_the_first_is_predicted_once",
        ),
        (
            "part.path, length, begin + later, end - later",
            "part.path, length, begin, end",
            "data/text_test::test_every_byte_but_the_first_is_predicted_once",
        ),
        (
            "start, stop = bounds(max(0, len(tokens) - 1) // length)",
            "start, stop = bounds(max(0, len(tokens) - 1) // length - 1)",
            "data/text_test",
        ),
        (
            'words = vocabulary(_cut(splits("train") or part), request.num_classes)',
            "words = vocabulary(_cut(part), request.num_classes)",
            "data/text_test::test_validation_is_told_in_the_words_of_training",
        ),
        (
            "key=lambda word: (-counts[word], word)",
            "key=lambda word: (counts[word], word)",
            "data/text_test::test_words_are_numbered_by_how_often_they_come",
        ),
        (
            "begin = part.start + (start + first) * length",
            "begin = part.start + first * length",
            "data/text_test::test_slices_count_windows_of_a_single",
        ),
    ),
    *of_file(
        "towers/data/text_splits.py",
        (
            '"validation": FileRange(os.fspath(path), cut, size),',
            '"validation": FileRange(os.fspath(path), 0, size),',
            "data/text_test::test_every_byte_but_the_first_is_predicted_once",
        ),
        ('between = b"\\n"', 'between = b""', "data/text_splits_test"),
    ),
    *of_file(
        "towers/data/ratings.py",
        (
            "drawn = drawn[~np.isin(drawn, rated)]",
            "",
            "data/ratings_test::test_validation",
        ),
        (
            "np.lexsort((item, time, user))",
            "np.lexsort((time, item, user))",
            "data/ratings_test::test_an_item_that_is_rated_again_is_not_trained_on_and_held",
        ),
        (
            "rest = np.delete(np.stack([user, item], axis=1), ends - 1, axis=0)",
            "rest = np.stack([user, item], axis=1)",
            "data/ratings_test::test_training",
        ),
        (
            "labels = tf.one_hot(0, 1 + _EVAL_NEGATIVES, dtype=tf.int32)",
            "labels = tf.one_hot(1, 1 + _EVAL_NEGATIVES, dtype=tf.int32)",
            "data/ratings_test::test_validation",
        ),
    ),
    *of_file(
        "towers/data/synthetic.py",
        (
            "before = part.index * share + len(batches) * batch_size",
            "before = part.index * share",
            "data/synthetic_test::test_rows_do_not_depend_on_the_layout",
        ),
        (
            "return tokens[:, :-1], tokens[:, 1:]",
            "return tokens[:, 1:], tokens[:, :-1]",
            "data/synthetic_test::test_tokens_are_followed_by_their_labels",
        ),
        (
            "now, start = _counter(position, part.count * share)",
            "now, start = _counter(position, share)",
            "data/synthetic_test::test_parts_of_a_step_are_the_step",
        ),
    ),
    *of_file(
        "towers/data/digits.py",
        (
            "[_HOLD_OUT - 1 :: _HOLD_OUT]",
            "[:: _HOLD_OUT]",
            "data/digits_test::test_a_fifth_of_each_digit_is_held_out",
        ),
        (
            "(255 / 16)",
            "(256 / 16)",
            "data/digits_test::test_images_use_the_whole_range",
        ),
    ),
    *of_file(
        "towers/evaluation/eval_settings.py",
        (
            "at_end = in_epochs if flags.eval_at_end is None else flags.eval_at_end",
            "at_end = in_epochs or flags.eval_at_end",
            "evaluation/eval_settings_test::test_wanted",
        ),
        (
            "if names and not real:",
            "if names and real:",
            "evaluation/eval_settings_test::test_goes",
        ),
    ),
    *of_file(
        "towers/data/memory_check.py",
        (
            "if examples >= _INT_LIMIT:",
            "if examples > _INT_LIMIT:",
            "data/memory_check_test::test_refuses",
        ),
        (
            "step * (1 + prefetch) > limit.most:",
            "step > limit.most:",
            "data/memory_check_test::test_refuses",
        ),
    ),
    *of_file(
        "towers/data/stream.py",
        (
            "return self._features(image[None], index)[0], label, index",
            "return self._features(image[None], position)[0], label, index",
            "data/stream_test::test_images_of_all_sizes_are_distorted_by_draws_of_their_own",
        ),
        (
            "dataset = self.records.open(seed if shuffled else None)",
            "dataset = self.records.open(None)",
            "data/stream_test::test_files_are_opened_in_an_order_of_the_epoch",
        ),
        (
            "row = (index - position) % share.step",
            "row = index % share.step",
            "data/stream_test::test_hosts_share_the_rows_of_each_step",
        ),
        (
            "min(n, _SHUFFLE_BUFFER), seed=scalar,",
            "min(n, _SHUFFLE_BUFFER), seed=7,",
            "data/stream_test::test_every_epoch_is_whole_and_has_its_own_order",
        ),
        (
            "steps = numbers_of_rows.batch(share.step, "
            "drop_remainder=True).enumerate()",
            "steps = numbers_of_rows.batch(share.step, "
            "drop_remainder=True).enumerate(1)",
            "data/stream_test::test_a_step_may_be_larger_than_the_epoch",
        ),
        (
            "numbers = permutation(n, seed) if self.shuffle else tf.range(n)",
            "numbers = permutation(n, seed)",
            "data/stream_test::test_both_ways_hold_the_same_examples_and_distort_them_alike",
        ),
        (
            "return self._features(images, indices[0]), labels, indices",
            "return self._features(images, indices[-1]), labels, indices",
            "data/stream_test::test_both_ways_hold_the_same_examples_and_distort_them_alike",
        ),
    ),
    *of_file(
        "towers/data/source.py",
        (
            "tf.where(weight > 0, weight, 1.0)",
            "weight",
            "variable_update/train_steps_test::test_a_step_beyond_the_last_example_changes_nothing",
        ),
        (
            "whole = tf.add_n(weights) if self.weight is None else self.weight",
            "whole = tf.add_n(weights)",
            "variable_update/between_graph_cluster_test::test_as_in_one_process",
        ),
        (
            "return tf.cast(tf.clip_by_value(left, 0, total), tf.float32)",
            "return tf.cast(tf.minimum(left, total), tf.float32)",
            "data/source_test::test_what_all_parts_of_a_step_weigh",
        ),
    ),
    *of_file(
        "towers/data/synthetic.py",
        (
            "pixels * (2 / 255) - 1.0",
            "pixels * (2 / 256) - 1.0",
            "data/synthetic_test::test_looks_like_scaled_images",
        ),
        (
            "[tf.cast(v.read_value(), dtype) for v, dtype in zip(kept, dtypes)]",
            "[v.read_value() for v, dtype in zip(kept, dtypes)]",
            "data/synthetic_test::test_pairs_of_which_one_in_five_is_liked",
        ),
        (
            "indices = now + np.arange(first, first + batch_size)",
            "indices = now + np.arange(batch_size)",
            "data/synthetic_test::test_parts_of_a_step_are_the_step",
        ),
    ),
    *of_file(
        "towers/data/preprocessing.py",
        (
            "taken = tf.argmax(fits, axis=1)",
            "taken = tf.argmin(fits, axis=1)",
            "data/preprocessing_test::test_an_example_is_treated_the_same_in_any_batch",
        ),
    ),
    *of_file(
        "towers/data/records.py",
        (
            "if labels.min() < 0 or labels.max() >= num_classes:",
            "if labels.min() < 0 or labels.max() > num_classes:",
            "data/records_test::test_arrays_that_do_not_fit",
        ),
    ),
    *of_file(
        "towers/data/stream_source.py",
        (
            "batches += [weighted(*piece, limit=limit) for piece in pieces]",
            "batches += [weighted(*piece, limit=None) for piece in pieces]",
            "data/inputs_test::test_evaluation_counts_every_example_once",
        ),
        (
            "if not part.apart and (stage or (stage is None and on_gpu)):",
            "if stage or (stage is None and on_gpu):",
            "data/inputs_test::test_asynchronous_towers_are_not_staged_for",
        ),
    ),
]
