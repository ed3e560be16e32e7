"""Faults in `towers/gradients/`: a sum for a mean, a share left out, a wrong dtype."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/gradients/mean.py",
        ("hosts=hosts, dtype=dtype)", "dtype=dtype)", "sparse_test wire_test"),
        ("own[k] for k in group]", "own[k] for k in group[:2]]", "mean_test"),
        (
            "host_sums = [_cast(host_sum, dtype) for host_sum in host_sums]",
            "host_sums = list(host_sums)",
            "mean_test::test_gradients_travel_in_the_dtype_asked_for",
        ),
        (
            "if groups and (many_tasks or len(groups) > 1):",
            "if groups and len(groups) > 1:",
            "mean_test::test_a_servers_gradient_is_added_on_each_host_first",
        ),
        (
            'if gradient is None:\n        return "missing"',
            'if gradient is None:\n        return "dense"',
            "mean_test::test_gradients_that_differ_in_kind",
        ),
        (
            "wide = [precision.widen(s, d) for s, d in zip(shares, destinations)]",
            "wide = shares",
            "precision_test mean_test",
        ),
    ),
    *of_file(
        "towers/gradients/packing.py",
        ("dtype.size > max_bytes", "dtype.size >= max_bytes", "packing_test"),
        (
            "if len(current) == max_group:",
            "if len(current) == max_group + 1:",
            "packing_test::test_few_reductions",
        ),
        (
            "return groups + ([current] if current else [])",
            "return groups",
            "packing_test::test_values",
        ),
        (
            "return [x if s.rank == 1 else tf.reshape(x, s) for",
            "return [x if s.rank == 1 else tf.reshape(x, s[::-1]) for",
            "packing_test::test_values",
        ),
    ),
    *of_file(
        "towers/gradients/sparse.py",
        (
            "host_sums = [_cast(host_sum, dtype) for host_sum in host_sums]",
            "host_sums = list(host_sums)",
            "sparse_test::test_16_bits_travel",
        ),
        (
            "tf.cast(gradient.values, tf.float32),",
            "gradient.values,",
            "sparse_test::test_many_rows_of_16_bits_all_count",
        ),
        ("tf.math.segment_sum(", "tf.math.segment_mean(", "sparse_test::test_equal"),
        (
            "sums = tf.math.segment_sum(tf.gather(values, order), place)",
            "sums = tf.math.segment_sum(values, place)",
            "sparse_test::test_equal_rows",
        ),
    ),
    *of_file(
        "towers/gradients/reduction.py",
        ("cpus[shard % len(cpus)]", "cpus[0]", "reduction_test"),
        ("num_bytes <= r.limit)", "num_bytes < r.limit)", "reduction_test probe_test"),
        (
            "if len(groups) == 1 and len(shares) >= 4:",
            "if len(groups) == 1 and len(shares) > 4:",
            "reduction_test::test_hierarchical_on_one_host",
        ),
        (
            "if len(set(hosts)) > 1:",
            "if len(set(hosts)) > 2:",
            "reduction_test::test_what_devices_cannot_do",
        ),
        (
            "copies[k] = wire.copy(copies[root], devices[root], devices[k])",
            "copies[k] = wire.copy(total, devices[root], devices[k])",
            "reduction_test::test_a_tensor_crosses_the_network_once",
        ),
        (
            "groups.setdefault(host, []).append(k)",
            "groups.setdefault(host, []).insert(0, k)",
            "reduction_test",
        ),
    ),
    *of_file(
        "towers/gradients/all_reduce.py",
        (
            "held.append(wire.copy(held[partner], devices[partner], devices[extra]))",
            "held.append(held[partner])",
            "all_reduce_test::test_results_lie_on_their_devices",
        ),
        (
            "held[0] = wire.rounded(held[0], where[0])",
            "held[0] = tf.identity(held[0])",
            "all_reduce_test::test_a_tree_in_16_bits_against_numpy",
        ),
        (
            "arrived = [wire.carry(s, d, root) for s, d in zip(shares, devices)]",
            "arrived = list(shares)",
            "all_reduce_test::test_16_bits_are_half",
        ),
        ("in reversed(hops):", "in hops:", "all_reduce_test::test_sum"),
        (
            "_rotated(count, chunk + 1 + shard)",
            "_rotated(count, 1 + shard)",
            "all_reduce_test",
        ),
        (
            "_rotated(len(devices), shard *",
            "_rotated(len(devices), 0 *",
            "all_reduce_test",
        ),
        ("source = k % half + offset", "source = k", "all_reduce_test"),
    ),
    *of_file(
        "towers/gradients/transfer.py",
        (
            "if not self.narrow or source == target:",
            "if not self.narrow:",
            "transfer_test::test_numbers",
        ),
        (
            "return _widen(self._narrow(total, device), device)",
            "return total",
            "transfer_test::test_numbers",
        ),
    ),
    *of_file(
        "towers/gradients/spec.py",
        ("if limit <= last_limit:", "if limit < last_limit:", "spec_test"),
        ('"K": 2**10,', '"K": 10**3,', "spec_test::test_specs"),
        ("start += len(level) + 1", "start += len(level)", "spec_test::test_errors"),
        ("int(shards) <= MAX_SHARDS", "int(shards) < MAX_SHARDS", "spec_test"),
    ),
    *of_file(
        "towers/gradients/exchange.py",
        (
            "len(where.parameters) < 2:",
            "len(where.parameters) < 1:",
            "planning_test::test_variables_are_spread",
        ),
        (
            "packing.small(self.small_bytes, self.small_group, reduce)",
            "packing.small(self.small_group, self.small_bytes, reduce)",
            "exchange_test",
        ),
        (
            "return Wire(self.transfer or tf.float32)",
            "return Wire()",
            "synchronous_test",
        ),
    ),
    *of_file(
        "towers/gradients/wire.py",
        ("0 < size <= (", "0 < size < (", "wire_test"),
        (
            "filled[route] + size > _BUNDLE",
            "size > _BUNDLE",
            "wire_test::test_a_bundle",
        ),
        ("key = (tensor.name, host)", "key = (tensor.name, '')", "wire_test"),
        (
            "return [bundle for bundle in [*done, *open_.values()]",
            "return [bundle for bundle in [*open_.values()]",
            "wire_test::test_a_bundle",
        ),
    ),
    *of_file(
        "towers/gradients/collective.py",
        (
            "others = [m.op for m in members if m is not member]",
            "others = []",
            "collective_test::test_the_sum_of_one_tower_alone",
            True,
        ),
        (
            "input=tf.cast(piece, wire.dtype),",
            "input=tf.cast(piece, tf.float32),",
            "collective_test::test_sums",
        ),
    ),
]
