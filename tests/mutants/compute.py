"""Faults in `towers/compute/`: weights, seeds, axes, dtypes, what is counted."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/compute/tower.py",
        (
            'batch["weights"] / batch["total_weight"]',
            'batch["weights"] / tf.reduce_sum(batch["weights"])',
            "equivalence_test::test_short_last_batches",
        ),
        (
            "start = scale if task.loss_scaled else None",
            "start = None",
            "loss_scale_test",
        ),
        (
            'first_example=batch["first"],',
            "first_example=0,",
            "tower_test::test_dropout_follows",
        ),
        (
            "parameters=sum(v.shape.num_elements() for",
            "parameters=sum(1 for",
            "tower_test describe_test model_test",
        ),
        (
            "repeatable.check(graph)",
            "",
            "tower_test::test_stateful_draws",
        ),
    ),
    *of_file(
        "towers/compute/accumulation.py",
        (
            'inputs["first"] += tf.cast(index, tf.int64) * size',
            "",
            "accumulation_test::test_rounds_are_one_larger_batch",
        ),
        (
            "{name: of[name] / rounds for name in statistics}",
            "{name: of[name] for name in statistics}",
            "accumulation_test::test_the_statistics",
        ),
        (
            "return total.write(index, part)",
            "return total.write(0 * index, part)",
            "accumulation_test::test_sparse_gradients",
        ),
    ),
    *of_file(
        "towers/compute/addition.py",
        ("last = 1 - _AT_ONCE", "last = -_AT_ONCE", "addition_test::test_at_most_four"),
        (
            "with tf.control_dependencies([total]):",
            "with tf.control_dependencies([]):",
            "addition_test::test_inputs_are_held",
        ),
        (", aggregation_method=pairs)", ")", "addition_test::test_what_comes_back"),
    ),
    *of_file(
        "towers/compute/joining.py",
        (
            "variances + (means - whole) ** 2",
            "variances",
            "joining_test::test_moments_are",
        ),
        (
            "(own[0] - received[0])",
            "(received[0] - own[0])",
            "joining_test::test_the_gradient_of_moments",
        ),
        (
            '"sync_micro_batch": Reach(towers=True, micro_batches=False)',
            '"sync_micro_batch": Reach(towers=True, micro_batches=True)',
            "joining_test::test_every_reach",
        ),
        (
            "if reach.micro_batches and rounds > 1:",
            "if reach.towers and rounds > 1:",
            "stages_equivalence_test::test_rounds_cannot_meet",
        ),
    ),
    *of_file(
        "towers/compute/factors.py",
        (
            "return len(towers) * sum(own) <= size",
            "return sum(own) <= size",
            "factors_test::test_where_they_are_less",
        ),
        (
            "first.axes[side], device",
            "first.axes[0], device",
            "factors_test::test_is_the",
        ),
        (
            "if _is_gpu(first.whole.device) != _is_gpu(device):",
            "if _is_gpu(device):",
            "factors_test::test_no_cpu_multiplies",
        ),
        (
            "if all(task_of(host) == there for host in hosts):",
            "if hosts:",
            "factors_test::test_a_layers_cross",
        ),
    ),
    *of_file(
        "towers/compute/look_up.py",
        (
            "own = [some - start for some, start in zip(own, table.starts)]",
            "own = list(own)",
            "look_up_test::test_every_row",
        ),
        (
            "and early and whole and read not in outputs",
            "and whole and read not in outputs",
            "look_up_test",
        ),
        ('axis.op == "Const" and not', 'axis.op == "Const" and', "look_up_test"),
    ),
    *of_file(
        "towers/compute/precision.py",
        (
            "if key not in self._made:",
            "if True:",
            "precision_test::test_weights_are_cast",
        ),
        (
            "tf.cast(share, tf.float32))",
            "share)",
            "precision_test::test_gradients_travel",
        ),
    ),
    *of_file(
        "towers/compute/division.py",
        (
            "min(late, levels.get(one, late))",
            "max(late, levels.get(one, late))",
            "division_test",
        ),
        (
            "steps = [levels[one] + _changes(nodes, one, name) for one in before]",
            "steps = [levels[one] for one in before]",
            "division_test",
        ),
    ),
    *of_file(
        "towers/compute/compact.py",
        (
            "(value, node.device), node.name",
            "(value, ''), node.name",
            "compact_test::test_constants_of_two",
        ),
        (
            "or op.outputs[0].dtype != tf.int32:",
            "or op.outputs[0].dtype == tf.string:",
            "compact_test::test_long_shapes",
        ),
        (
            "not node.input and node.name not in fixed:",
            "not node.input:",
            "compact_test::test_outputs_and_what",
        ),
    ),
    *of_file(
        "towers/compute/kernels.py",
        (
            "by_a = tf.matmul(dy, b, transpose_b=not turned[1])",
            "by_a = tf.matmul(dy, b, transpose_b=True)",
            "kernels_test::test_the_gradients_of_a_product",
        ),
        (
            "ones = tf.ones([1, rows.shape[0] or tf.shape(rows)[0]], rows.dtype)",
            "return tf.reduce_sum(rows, 0) * 0.5",
            "kernels_test::test_rows_are_summed",
        ),
        (
            "begin = paddings[:, 0] if known",
            "begin = paddings[:, 1] if known",
            "kernels_test::test_the_gradient_of_a_padding",
        ),
    ),
    *of_file(
        "towers/compute/classifier.py",
        (
            "piece.total * tf.exp(piece.top - top)",
            "piece.total",
            "classifier_test::test_loss_and_gradients",
        ),
        (
            "tf.add_n(larger) < k",
            "tf.add_n(larger) <= k",
            "classifier_test::test_who_is_among",
        ),
        (
            "tf.cast(logits > label[:, None], tf.int32)",
            "tf.cast(logits >= label[:, None], tf.int32)",
            "classifier_test::test_who_is_among",
        ),
        (
            "only_own = tf.where(own, of_label, 0.0)",
            "only_own = of_label",
            "classifier_test::test_loss_and_gradients",
        ),
    ),
    *of_file(
        "towers/compute/stamping.py",
        (
            "part = 1.0 if joined else 1.0 / len(towers)",
            "part = 1.0",
            "stamping_test::test_shares_add_up",
        ),
        (
            'copy.device = "" if device == first.device else device',
            'copy.device = ""',
            "stamping_test",
        ),
    ),
    *of_file(
        "towers/compute/variable_getter.py",
        (
            'owner = tf.searchsorted(starts, flat, side="right") - 1',
            'owner = tf.searchsorted(starts, flat, side="left") - 1',
            "variable_getter_test shards_equivalence_test::test_rows_and_classes",
        ),
        ("if known.dtype != dtype:", "if False:", "precision_test::test_a_variable_is"),
    ),
    *of_file(
        "towers/compute/flops.py",
        (
            "return 2 * _size(op.outputs[0]) * (length or 0)",
            "return _size(op.outputs[0]) * (length or 0)",
            "flops_test::test_matmul",
        ),
    ),
    *of_file(
        "towers/compute/repeatable.py",
        (
            "any(t in kind for t in _DRAWS) and not kind.startswith(_STATELESS)",
            "any(t == kind for t in _DRAWS) and not kind.startswith(_STATELESS)",
            "repeatable_test::test_refuses",
        ),
        ("id(one) not in returned:", "id(one) in returned:", "repeatable_test"),
    ),
    *of_file(
        "towers/compute/convolution.py",
        (
            "[0, 0], [0, down - 1], [0, 0], [0, (right - 1) * channels]]",
            "[0, 0], [down - 1, 0], [0, 0], [0, (right - 1) * channels]]",
            "convolution_test::test_the_gradients_are",
        ),
        (
            "sides = [[(length - 1) // 2, length // 2] for length in window]",
            "sides = [[length // 2, (length - 1) // 2] for length in window]",
            "convolution_test::test_the_gradients_are",
        ),
    ),
]
