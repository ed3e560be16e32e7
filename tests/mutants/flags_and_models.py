"""Faults in `flags/` and `models/`: rules, bounds, losses, metrics, layers."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "flags/rules.py",
        (
            "if active != [self.flag]:",
            "if active:",
            "flags/rules_test::test_a_program_without_a_flag_has_no_row_about_it",
        ),
        (
            "return self.value == text",
            "return self.value in text",
            "flags/rules_test::test_holds",
        ),
    ),
    *of_file(
        "flags/optimizer.py",
        ("epoch > before):", "epoch >= before):", "flags/optimizer_test::test_refuses"),
        (
            "tuple(numbers[::2]), tuple(numbers[1::2])",
            "tuple(numbers[1::2]), tuple(numbers[::2])",
            "flags/optimizer_test::test_reads",
        ),
    ),
    *of_file(
        "flags/stages.py",
        (
            "whole = self.num_stages == 1 and self.num_micro_batches == 1",
            "whole = self.num_stages == 1",
            "flags/stages_test::test_what_makes_a_pipeline",
        ),
    ),
    *of_file(
        "models/uniform.py",
        (
            "blocks = -(-units // 4)",
            "blocks = units // 4 + 1",
            "models/uniform_test::test_the_draws_of_a_seed_stay_the_same",
        ),
        (
            "tf.constant([seed & (2**64 - 1)], tf.uint64)",
            "tf.constant([seed & 1], tf.uint64)",
            "models/uniform_test::test_seed_and_salt_tell_draws_apart",
        ),
        (
            "tf.constant(salt, tf.int64)])",
            "tf.constant(0, tf.int64)])",
            "models/uniform_test::test_seed_and_salt_tell_draws_apart",
        ),
        (
            "counter = tf.stack([tf.cast(first, tf.int64) * blocks,",
            "counter = tf.stack([tf.cast(first, tf.int64),",
            "models/uniform_test::test_rows_belong_to_examples",
        ),
    ),
    *of_file(
        "models/layers.py",
        (
            "keep = tf.cast(draw >= rate, x.dtype)",
            "keep = tf.cast(draw >= 1.0 - rate, x.dtype)",
            "models/layers_test::test_keeps_the_mean",
        ),
        (
            "salt=zlib.crc32(scope.name.encode()),",
            "salt=0,",
            "models/layers_test::test_draws_anew_for_every_example_layer_and_seed",
        ),
        (
            "first=self._first_example,",
            "first=0,",
            "models/layers_test::test_belongs_to_examples_not_to_batches",
        ),
        (
            "variance * (count / max(count - 1, 1))",
            "variance",
            "compute/sync_batch_norm_test::test_towers_are_one_on_the_joined_batch",
        ),
        (
            "spatial = [((k - 1) // 2, k - 1 - (k - 1) // 2) for k in size]",
            "spatial = [(k - 1 - (k - 1) // 2, (k - 1) // 2) for k in size]",
            "models/layers_test::test_fixed_padding",
        ),
        (
            "axes = [2, 3] if self.data_format",
            "axes = [1, 2] if self.data_format",
            "models/layers_test::test_same_in_either_format",
        ),
        (
            "gain = 2.0 if activation else 1.0",
            "gain = 2.0",
            "models/layers_test::test_variance_of_the_kernel",
        ),
    ),
    *of_file(
        "models/logits.py",
        (
            "targets=labels, k=k\n",
            "targets=labels, k=k + 1\n",
            "models/logits_test::test_in_top_k_of_a_tensor",
        ),
        (
            "labels=labels, logits=tf.cast(logits, tf.float32)",
            "labels=labels, logits=logits",
            "models/model_test::test_cross_entropy_of_bfloat16_is_float32",
        ),
    ),
]
