"""Faults in `flags/` and `models/`: rules, bounds, losses, metrics, layers."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "flags/pairs.py",
        (
            "if found != [self.flag]:",
            "if found:",
            "pairs_test config_test::test_legal",
        ),
        (
            'return self.value == text if self.relation == "=" else self.value in text',
            "return self.value in text",
            "pairs_test config_test",
        ),
    ),
    *of_file(
        "flags/update.py",
        ("epoch > before):", "epoch >= before):", "update_test::test_refuses"),
        (
            "tuple(numbers[::2]), tuple(numbers[1::2])",
            "tuple(numbers[1::2]), tuple(numbers[::2])",
            "update_test::test_reads",
        ),
    ),
    *of_file(
        "flags/staged.py",
        (
            "whole = self.num_stages == 1 and self.num_micro_batches == 1",
            "whole = self.num_stages == 1",
            "staged_test::test_what_makes",
        ),
    ),
    *of_file(
        "models/layers.py",
        (
            "keep = tf.cast(draw >= rate, x.dtype)",
            "keep = tf.cast(draw >= 1.0 - rate, x.dtype)",
            "layers_test::test_keeps_the_mean",
        ),
        (
            "salt=zlib.crc32(scope.name.encode()),",
            "salt=0,",
            "layers_test::test_draws_anew",
        ),
        (
            "first=self._first_example,",
            "first=0,",
            "layers_test::test_belongs",
        ),
        (
            "variance * (count / max(count - 1, 1))",
            "variance",
            "assembly_test::test_towers_are_one layers_test",
        ),
        (
            "spatial = [((k - 1) // 2, k - 1 - (k - 1) // 2) for k in size]",
            "spatial = [(k - 1 - (k - 1) // 2, (k - 1) // 2) for k in size]",
            "layers_test::test_fixed_padding",
        ),
        (
            "axes = [2, 3] if self.data_format",
            "axes = [1, 2] if self.data_format",
            "layers_test::test_same_in_either",
        ),
        (
            "gain = 2.0 if activation else 1.0",
            "gain = 2.0",
            "layers_test::test_variance",
        ),
    ),
    *of_file(
        "models/logits.py",
        (
            "targets=labels, k=k\n",
            "targets=labels, k=k + 1\n",
            "logits_test model_test::test_accuracy",
        ),
        (
            "labels=labels, logits=tf.cast(logits, tf.float32)",
            "labels=labels, logits=logits",
            "model_test::test_cross_entropy_of_bfloat16",
        ),
    ),
]
