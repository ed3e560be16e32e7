"""Faults in `towers/compute/`: weights, seeds, axes, dtypes, what is counted."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/compute/tower.py",
        (
            'batch["weights"] / batch["total_weight"]',
            'batch["weights"] / tf.reduce_sum(batch["weights"])',
            "equivalence_test::test_short_last_batches_and_towers_without_examples",
        ),
        (
            "start = scale if task.loss_scaled else None",
            "start = None",
            "optimizers/loss_scale_test::test_a_power_of_two_changes_nothing_in_float32",
        ),
        (
            'first_example=batch["first"],',
            "first_example=0,",
            "compute/tower_test::test_dropout_follows_the_example_not_the_tower",
        ),
        (
            "parameters=sum(v.shape.num_elements() for",
            "parameters=sum(1 for",
            "compute/tower_test::test_parameters_are_elements",
        ),
        (
            "model_checks.check(graph)",
            "",
            "compute/tower_test::test_stateful_draws_are_refused",
        ),
    ),
    *of_file(
        "towers/compute/accumulation.py",
        (
            "groups = [sites] if template.exchanges else [[site] for site in sites]",
            "groups = [[site] for site in sites]",
            "compute/accumulation_test::test_towers_that_normalise_together_do_so_round_by",
        ),
        (
            'inputs["first"] += tf.cast(index, tf.int64) * size',
            "",
            "compute/accumulation_test::test_rounds_are_one_larger_batch",
        ),
        (
            "{name: of[name] / rounds for name in statistics}",
            "{name: of[name] for name in statistics}",
            "compute/accumulation_test::test_the_statistics_are_the_mean_of_the_rounds",
        ),
        (
            "return total.write(index, part)",
            "return total.write(0 * index, part)",
            "compute/accumulation_test::test_sparse_gradients",
        ),
    ),
    *of_file(
        "towers/compute/deterministic_sum.py",
        (
            "last = 1 - _AT_ONCE",
            "last = -_AT_ONCE",
            "compute/deterministic_sum_test::test_at_most_four_large_tensors_wait_for_each_other",
        ),
        (
            "with tf.control_dependencies([total]):",
            "with tf.control_dependencies([]):",
            "compute/deterministic_sum_test::test_inputs_are_held_until_the_sum_is_done",
        ),
        (
            ", aggregation_method=pairs)",
            ")",
            "compute/deterministic_sum_test::test_what_comes_back_from_many_places_is_added_in_pairs",
        ),
    ),
    *of_file(
        "towers/compute/sync_batch_norm.py",
        (
            "variances + (means - whole) ** 2",
            "variances",
            "compute/sync_batch_norm_test::test_moments_are_those_of_all_rows",
        ),
        (
            "(tower_moments[0] - received[0])",
            "(received[0] - tower_moments[0])",
            "compute/sync_batch_norm_test::test_the_gradient_of_moments_is_that_of_all_rows",
        ),
        (
            '"sync_micro_batch": StatisticsScope(towers=True, micro_batches=False)',
            '"sync_micro_batch": StatisticsScope(towers=True, micro_batches=True)',
            "compute/sync_batch_norm_test::test_every_reach",
        ),
        (
            "if reach.micro_batches and rounds > 1:",
            "if reach.towers and rounds > 1:",
            "pipelines/stages_equivalence_test::test_rounds_cannot_meet",
        ),
    ),
    *of_file(
        "towers/compute/sufficient_factors.py",
        (
            "return len(towers) * sum(factor_sizes) <= size",
            "return sum(factor_sizes) <= size",
            "compute/sufficient_factors_test::test_where_they_are_less",
        ),
        (
            "first.axes[side], device",
            "first.axes[0], device",
            "compute/sufficient_factors_test::test_is_the_sum_of_the_products",
        ),
        (
            "if _is_gpu(first.whole.device) != _is_gpu(device):",
            "if _is_gpu(device):",
            "compute/sufficient_factors_test::test_no_cpu_multiplies_in_the_16_bits_of_a_gpu",
        ),
        (
            "if all(task_of(host) == there for host in hosts):",
            "if hosts:",
            "compute/sufficient_factors_test::test_a_layers_cross_the_network_in_two_transfers_per_host",
        ),
    ),
    *of_file(
        "towers/compute/embedding_lookup.py",
        (
            "part_ids = [some - start for some, start in zip(part_ids, table.starts)]",
            "part_ids = list(part_ids)",
            "compute/embedding_lookup_test::test_every_row_from_the_task_that_has_it",
        ),
        (
            "and early and whole and read not in outputs",
            "and whole and read not in outputs",
            "compute/embedding_lookup_test::test_what_is_looked_up_by_what_a_variable_says_is_read",
        ),
        (
            'axis.op == "Const" and not',
            'axis.op == "Const" and',
            "compute/embedding_lookup_test::test_what_is_only_looked_up_is_not_read",
        ),
    ),
    *of_file(
        "towers/compute/precision.py",
        (
            "if key not in self._made:",
            "if True:",
            "compute/precision_test::test_weights_are_cast_once_for_all_towers",
        ),
    ),
    *of_file(
        "towers/compute/split_by_device.py",
        (
            "min(late, levels.get(source, late))",
            "max(late, levels.get(source, late))",
            "compute/split_by_device_test::test_a_device_is_where_its_operations_are",
        ),
        (
            "steps = [levels[source] + _changes(nodes, source, name) for source in "
            "before]",
            "steps = [levels[source] for source in before]",
            "compute/split_by_device_test::test_parts_one_after_the_other_are_the_whole",
        ),
    ),
    *of_file(
        "towers/compute/graph_rewrite.py",
        (
            "(value, node.device), node.name",
            "(value, ''), node.name",
            "compute/graph_rewrite_test::test_constants_of_two_devices_or_types_are_two",
        ),
        (
            "or op.outputs[0].dtype != tf.int32:",
            "or op.outputs[0].dtype == tf.string:",
            "compute/graph_rewrite_test::test_long_shapes_stay_where_their_kernel_puts_them",
        ),
        (
            "not node.input and node.name not in fixed:",
            "not node.input:",
            "compute/graph_rewrite_test::test_outputs_and_what_others_wait_for_stay",
        ),
    ),
    *of_file(
        "towers/compute/kernels.py",
        (
            "by_a = tf.matmul(dy, b, transpose_b=not turned[1])",
            "by_a = tf.matmul(dy, b, transpose_b=True)",
            "compute/kernels_test::test_the_gradients_of_a_product",
        ),
        (
            "ones = tf.ones([1, rows.shape[0] or tf.shape(rows)[0]], rows.dtype)",
            "return tf.reduce_sum(rows, 0) * 0.5",
            "compute/kernels_test::test_rows_are_summed_in_float32",
        ),
        (
            "begin = paddings[:, 0] if static_paddings",
            "begin = paddings[:, 1] if static_paddings",
            "compute/kernels_test::test_the_gradient_of_a_padding",
        ),
    ),
    *of_file(
        "towers/compute/classifier.py",
        (
            "piece.total * tf.exp(piece.top - top)",
            "piece.total",
            "compute/classifier_test::test_loss_and_gradients",
        ),
        (
            "tf.add_n(larger) < k",
            "tf.add_n(larger) <= k",
            "compute/classifier_test::test_who_is_among_the_best",
        ),
        (
            "tf.cast(logits > label[:, None], tf.int32)",
            "tf.cast(logits >= label[:, None], tf.int32)",
            "compute/classifier_test::test_who_is_among_the_best",
        ),
        (
            "label_gradient = tf.where(is_here, of_label, 0.0)",
            "label_gradient = of_label",
            "compute/classifier_test::test_loss_and_gradients",
        ),
    ),
    *of_file(
        "towers/compute/copy_tower.py",
        (
            "part = 1.0 if joined else 1.0 / len(towers)",
            "part = 1.0",
            "compute/copy_tower_test::test_shares_add_up_or_are_averaged",
        ),
        (
            'copy.device = "" if device == first.device else device',
            'copy.device = ""',
            "compute/copy_tower_test::test_a_node_keeps_what_its_model_says_of_its_device",
        ),
    ),
    *of_file(
        "towers/compute/variable_getter.py",
        (
            'owner = tf.searchsorted(starts, flat, side="right") - 1',
            'owner = tf.searchsorted(starts, flat, side="left") - 1',
            "compute/variable_getter_test::test_rows_are_looked_up_where_they_are",
        ),
        (
            "if variable.dtype != dtype:",
            "if False:",
            "compute/precision_test::test_a_variable_is_read_in_one_dtype",
        ),
    ),
    *of_file(
        "towers/compute/flops.py",
        (
            "return 2 * _size(op.outputs[0]) * (length or 0)",
            "return _size(op.outputs[0]) * (length or 0)",
            "compute/flops_test::test_matmul_and_its_gradients",
        ),
    ),
    *of_file(
        "towers/compute/model_checks.py",
        (
            "any(t in kind for t in _DRAWS) and not kind.startswith(_STATELESS)",
            "any(t == kind for t in _DRAWS) and not kind.startswith(_STATELESS)",
            "compute/model_checks_test::test_refuses",
        ),
        (
            "id(loss) not in returned:",
            "id(loss) in returned:",
            "compute/model_checks_test::test_a_loss_that_is_collected_for_nobody",
        ),
    ),
    *of_file(
        "towers/compute/convolution.py",
        (
            "[0, 0], [0, down - 1], [0, 0], [0, (right - 1) * channels]]",
            "[0, 0], [down - 1, 0], [0, 0], [0, (right - 1) * channels]]",
            "compute/convolution_test::test_the_gradients_are_those_of_tensorflow",
        ),
        (
            "sides = [[(length - 1) // 2, length // 2] for length in window]",
            "sides = [[length // 2, (length - 1) // 2] for length in window]",
            "compute/convolution_test::test_the_gradients_are_those_of_tensorflow",
        ),
    ),
    *of_file(
        "towers/compute/embedding_lookup.py",
        (
            "early = all(inputs.isdisjoint(needed_by(nodes, [n.input[1]])) for n "
            "in gathers)",
            "early = True",
            "compute/embedding_lookup_test::test_what_is_looked_up_by_what_a_variable_says_is_read",
        ),
    ),
    *of_file(
        "towers/compute/copy_tower.py",
        (
            'return f"^{site.scope}/{name[1:]}" if name[0] == "^" else '
            'f"{site.scope}/{name}"',
            'return f"{site.scope}/{name.lstrip(chr(94))}"',
            "compute/tower_test::test_what_an_operation_waits_for_is_kept",
        ),
    ),
    *of_file(
        "towers/compute/sync_batch_norm.py",
        (
            "towers if reach.towers else 1, micro_batches if "
            "reach.micro_batches else 1",
            "towers if reach.towers else 1, micro_batches",
            "compute/sync_batch_norm_test::test_every_reach",
        ),
    ),
    *of_file(
        "towers/compute/classifier.py",
        (
            "finite.append(tf.reduce_all(tf.math.is_finite(logits), 1))",
            "pass",
            "compute/classifier_test::test_a_row_with_a_logit_that_is_no_number_is_told_nowhere",
        ),
        (
            "is_here = tf.logical_and(column >= 0, column < logits.shape[1])",
            "is_here = column >= 0",
            "compute/classifier_test::test_a_logit_that_is_no_number_is_nowhere_among_the_best",
        ),
    ),
    *of_file(
        "towers/compute/sufficient_factors.py",
        (
            "for tensor, host in zip(tensors, hosts, strict=True):\n"
            "            groups.setdefault(host, []).append(tensor)",
            "for tensor, host in zip(tensors, hosts, strict=True):\n"
            "            groups[host] = [*groups.get(host, [])[:1], "
            "tensor]",
            "compute/sufficient_factors_test::test_a_layers_cross_the_network_in_two_transfers_per_host",
        ),
    ),
    *of_file(
        "towers/compute/split_by_device.py",
        (
            "late = levels[name] - _changes(nodes, source, name)",
            "late = levels[name]",
            "compute/split_by_device_test::test_a_device_is_where_its_operations_are",
        ),
        (
            "levels |= {n: 0 for n in map(operation_of, outputs) if "
            "_is_constant(nodes[n])}",
            "pass",
            "compute/split_by_device_test::test_constants_may_be_wanted_and_are_where_they_are_read",
        ),
    ),
    *of_file(
        "towers/compute/deterministic_sum.py",
        (
            "_AT_ONCE = 4",
            "_AT_ONCE = 5",
            "compute/deterministic_sum_test::test_at_most_four_large_tensors_wait_for_each_other",
        ),
    ),
    *of_file(
        "towers/compute/kernels.py",
        (
            "return [None, _where_positive(by_masked, y), tf.zeros_like(y)]",
            "return [None, by_masked, tf.zeros_like(y)]",
            "second_derivatives_test::test_a_gradient_penalty_in_training",
        ),
    ),
    *of_file(
        "towers/compute/nodes.py",
        (
            " + list(op.control_inputs)",
            "",
            "compute/tower_test::test_what_an_operation_waits_for_is_kept",
        ),
    ),
]
