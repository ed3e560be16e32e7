"""Faults in `towers/gradients/`: a sum for a mean, a share left out, a wrong dtype."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/gradients/mean.py",
        ("hosts=hosts, dtype=dtype)", "dtype=dtype)", "gradients/mean_test"),
        (
            "per_tower[k] for k in group]",
            "per_tower[k] for k in group[:2]]",
            "gradients/mean_test::test_every_tower_of_a_host_counts_once",
        ),
        (
            "host_sums = [_cast(host_sum, dtype) for host_sum in host_sums]",
            "host_sums = list(host_sums)",
            "gradients/mean_test",
        ),
        (
            "if groups and (many_tasks or len(groups) > 1):",
            "if groups and len(groups) > 1:",
            "gradients/mean_test",
        ),
        (
            'if gradient is None:\n        return "missing"',
            'if gradient is None:\n        return "dense"',
            "gradients/mean_test::test_gradients_that_differ_in_kind_are_an_error_that_names_the",
        ),
        (
            "wide = [transfer.widen(s, d) for s, d in zip(shares, destinations)]",
            "wide = shares",
            "compute/precision_test::test_towers_equal_one_tower_to_the_rounding_of_bfloat16",
        ),
    ),
    *of_file(
        "towers/gradients/transfer.py",
        (
            "return [_widen(share, device) for share, device in zip(shares, where)]",
            "return list(shares)",
            "compute/precision_test::test_gradients_travel_in_16_bits_and_are_added_in_32",
        ),
        (
            "dtype.size > max_bytes",
            "dtype.size >= max_bytes",
            "gradients/transfer_test::test_few_reductions",
        ),
        (
            "if len(current) == max_group:",
            "if len(current) == max_group + 1:",
            "gradients/transfer_test::test_few_reductions",
        ),
        (
            "return groups + ([current] if current else [])",
            "return groups",
            "gradients/transfer_test::test_values",
        ),
        (
            "return [x if s.rank == 1 else tf.reshape(x, s) for",
            "return [x if s.rank == 1 else tf.reshape(x, s[::-1]) for",
            "gradients/transfer_test::test_values",
        ),
    ),
    *of_file(
        "towers/gradients/sparse.py",
        (
            "host_sums = [_cast(host_sum, dtype) for host_sum in host_sums]",
            "host_sums = list(host_sums)",
            "gradients/sparse_test::test_16_bits_travel_and_each_host_sends_once",
        ),
        (
            "tf.cast(gradient.values, tf.float32),",
            "gradient.values,",
            "gradients/sparse_test::test_many_rows_of_16_bits_all_count",
        ),
        (
            "tf.math.segment_sum(",
            "tf.math.segment_mean(",
            "gradients/sparse_test::test_equal_rows_are_added_once",
        ),
        (
            "sums = tf.math.segment_sum(tf.gather(values, order), place)",
            "sums = tf.math.segment_sum(values, place)",
            "gradients/sparse_test::test_equal_rows_are_added_once",
        ),
    ),
    *of_file(
        "towers/gradients/reduction.py",
        (
            "cpus[shard % len(cpus)]",
            "cpus[0]",
            "gradients/reduction_test::test_shards_are_added_on_the_hosts_in_turn",
        ),
        (
            "num_bytes <= r.limit)",
            "num_bytes < r.limit)",
            "gradients/reduction_test::test_a_size_is_the_largest_of_its_range",
        ),
        (
            "if len(groups) == 1 and len(shares) >= 4:",
            "if len(groups) == 1 and len(shares) > 4:",
            "gradients/reduction_test::test_hierarchical_on_one_host_makes_two_groups_of_its",
        ),
        (
            "if len(set(hosts)) > 1:",
            "if len(set(hosts)) > 2:",
            "gradients/reduction_test::test_what_devices_cannot_do_is_refused",
        ),
        (
            "copies[k] = wire.copy(copies[root], devices[root], devices[k])",
            "copies[k] = wire.copy(total, devices[root], devices[k])",
            "gradients/reduction_test::test_a_tensor_crosses_the_network_once_each_way",
        ),
        (
            "groups.setdefault(host, []).append(k)",
            "groups.setdefault(host, []).insert(0, k)",
            "gradients/reduction_test::test_towers_of_a_host_stay_in_order",
        ),
    ),
    *of_file(
        "towers/gradients/all_reduce.py",
        (
            "held.append(wire.copy(held[index], devices[index], "
            "devices[core + index]))",
            "held.append(held[index])",
            "gradients/all_reduce_test",
        ),
        (
            "held[0] = wire.rounded(held[0], where[0])",
            "held[0] = tf.identity(held[0])",
            "gradients/all_reduce_test::test_a_tree_in_16_bits_against_numpy",
        ),
        (
            "arrived = [wire.carry(s, d, root) for s, d in zip(shares, devices)]",
            "arrived = list(shares)",
            "gradients/all_reduce_test::test_16_bits_are_half_the_bytes_of_32",
        ),
        ("in reversed(hops):", "in hops:", "gradients/all_reduce_test::test_sum"),
        (
            "_rotated(count, chunk + 1 + shard)",
            "_rotated(count, 1 + shard)",
            "gradients/all_reduce_test::test_a_ring_moves_as_little_as_a_ring_can",
        ),
        (
            "_rotated(len(devices), shard *",
            "_rotated(len(devices), 0 *",
            "gradients/all_reduce_test",
        ),
        (
            "source = k % half + offset",
            "source = k",
            "gradients/all_reduce_test::test_16_bits_are_half_the_bytes_of_32",
        ),
    ),
    *of_file(
        "towers/gradients/transfer.py",
        (
            "if not self.narrow or source == target:",
            "if not self.narrow:",
            "gradients/transfer_test::test_numbers_against_numpy",
        ),
        (
            "return _widen(self._narrow(total, device), device)",
            "return total",
            "gradients/transfer_test::test_numbers_against_numpy",
        ),
    ),
    *of_file(
        "towers/gradients/spec.py",
        (
            "if limit <= last_limit:",
            "if limit < last_limit:",
            "gradients/spec_test::test_errors_give_the_position",
        ),
        ('"K": 2**10,', '"K": 10**3,', "gradients/spec_test::test_specs"),
        (
            "start += len(level) + 1",
            "start += len(level)",
            "gradients/spec_test::test_errors_give_the_position",
        ),
        (
            "int(shards) <= MAX_SHARDS",
            "int(shards) < MAX_SHARDS",
            "gradients/spec_test::test_what_is_spelled_is_read_back",
        ),
    ),
    *of_file(
        "towers/gradients/exchange.py",
        (
            "len(where.parameters) < 2:",
            "len(where.parameters) < 1:",
            "planning_test::test_variables_are_spread_over_two_tasks_or_more",
        ),
        (
            "self.small_bytes, self.small_group, reduce",
            "self.small_group, self.small_bytes, reduce",
            "gradients/exchange_test::test_small_gradients_go_together",
        ),
        (
            "return Wire(self.transfer or tf.float32)",
            "return Wire()",
            "variable_update/synchronous_test::test_gradients_of_16_bits_travel_to_one_copy_without",
        ),
    ),
    *of_file(
        "towers/gradients/transfer.py",
        (
            "0 < size <= (",
            "0 < size < (",
            "gradients/transfer_test::test_small_ones_go_together_and_large_ones_alone",
        ),
        (
            "filled[route] + size > _BUNDLE",
            "size > _BUNDLE",
            "gradients/transfer_test::test_a_bundle_is_no_larger_than_so_much",
        ),
        (
            "key = (tensor.name, host)",
            "key = (tensor.name, '')",
            "gradients/transfer_test::test_each_way_the_parameters_once_per_worker",
        ),
        (
            "return [bundle for bundle in [*done, *open_.values()]",
            "return [bundle for bundle in [*open_.values()]",
            "gradients/transfer_test::test_a_bundle_is_no_larger_than_so_much",
        ),
    ),
    *of_file(
        "towers/gradients/collective.py",
        (
            "other_ops = [m.op for m in members if m is not member]",
            "other_ops = []",
            "gradients/collective_test::test_the_sum_of_one_tower_alone_runs_all_members",
            True,
        ),
        (
            "input=tf.cast(piece, wire.dtype),",
            "input=tf.cast(piece, tf.float32),",
            "gradients/collective_test::test_sums",
        ),
    ),
    *of_file(
        "towers/gradients/all_reduce.py",
        (
            "held[extra - core] = held[extra - core] + arrived",
            "held[extra - core] = arrived",
            "gradients/all_reduce_test::test_sum",
        ),
        (
            "devices[shard % len(devices)], wire)",
            "devices[0], wire)",
            "gradients/all_reduce_test::test_the_shards_",
        ),
        (
            "count = max(1, min(count, size))",
            "count = max(1, count)",
            "gradients/all_reduce_test::test_no_shard_is_empty",
        ),
    ),
    *of_file(
        "towers/gradients/sparse.py",
        (
            "    if len(groups) == 1 and here:",
            "    if here:",
            "gradients/sparse_test::test_16_bits_travel_and_each_host_sends_once",
        ),
        (
            "order = tf.argsort(indices, stable=True)",
            "order = tf.argsort(indices, direction='DESCENDING', stable=True)",
            "gradients/sparse_test::test_equal_rows_are_added_once",
        ),
    ),
    *of_file(
        "towers/gradients/reduction.py",
        (
            "hosts=[hosts[k] for k in towers],",
            "hosts=hosts,",
            "gradients/reduction_test::test_a_tensor_crosses_the_network_once_each_way",
        ),
    ),
    *of_file(
        "towers/gradients/transfer.py",
        (
            "(i < size % num_packs)",
            "(i <= size % num_packs)",
            "gradients/transfer_test::test_few_reductions",
        ),
    ),
    *of_file(
        "towers/gradients/transfer.py",
        (
            "            filled[route] = 0",
            "",
            "gradients/transfer_test::test_a_bundle_is_no_larger_than_so_much",
        ),
        (
            "routes[device, way, None if small else index]",
            "routes[device, way, None]",
            "gradients/transfer_test::test_small_ones_as_one_vector",
        ),
    ),
    *of_file(
        "towers/gradients/exchange.py",
        (
            "return [sparse.densify(gradients) for gradients in by_tower]",
            "return [sparse.densify(by_tower[0])] + by_tower[1:]",
            "gradients/sparse_test::test_clipping_and_weight_decay_are_those_of_the_dense_gradient",
        ),
    ),
    *of_file(
        "towers/gradients/collective.py",
        (
            "instance_key = tf.compat.v1.get_default_graph().version",
            "instance_key = 1",
            "gradients/collective_test::test_many_steps_in_one_call_are_the_same_steps",
        ),
    ),
]
