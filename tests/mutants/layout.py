"""Faults in `towers/layout/`: orders of passes, parts, devices, addresses, roles."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/layout/schedule.py",
        (
            "ahead=stages - 1 - stage,",
            "ahead=stages - stage,",
            "layout/schedule_test::test_activations_held",
        ),
        (
            "if backward and m:",
            "if backward and m > 1:",
            "layout/schedule_test::test_gradients_are_added_in_the_order_of_the_micro_batches",
        ),
        (
            "now += -1 if pass_.backward else 1",
            "now += 0 if pass_.backward else 1",
            "layout/schedule_test::test_activations_held",
        ),
        (
            "return passes + backward[len(forward) - ahead :]",
            "return passes + backward[len(forward) - ahead + 1 :]",
            "layout/schedule_test::test_every_pass_runs_once_after_what_it_needs",
        ),
        (
            "if chunk + 1 < num_chunks:",
            "if chunk + 2 < num_chunks:",
            "layout/schedule_test::test_the_time_is_that_of_the_formula",
        ),
    ),
    *of_file(
        "towers/layout/parts.py",
        (
            "sizes = [size + (k < rest) for k",
            "sizes = [size + (k >= self.count - rest) for k",
            "layout/parts_test::test_the_first_parts_are_longer",
        ),
        (
            'tf.searchsorted(starts, rows, side="right") - 1',
            'tf.searchsorted(starts, rows, side="left") - 1',
            "layout/parts_test::test_divides_a_sparse_gradient",
        ),
        (
            "count = min(most, sizes[axis], -(-num_bytes // limit))",
            "count = min(most, sizes[axis], num_bytes // limit)",
            "layout/parts_test::test_as_few_as_are_small_enough",
        ),
        (
            "[rows - start for rows, start in zip(indices, variable.starts)]",
            "indices",
            "layout/parts_test::test_divides_a_sparse_gradient",
        ),
        (
            'return _PART.sub("", name)',
            "return _PART.sub(\"\", name, count=0) if name.endswith('0') else name",
            "layout/parts_test::test_of_the_whole",
        ),
    ),
    *of_file(
        "towers/layout/partition.py",
        (
            "return max(largest, cost), squares",
            "return largest + cost, squares",
            "layout/partition_test::test_no_cut_has_a_smaller_largest_piece",
        ),
        (
            "squares + cost**2, (*ends, b)",
            "squares, (*ends, b)",
            "layout/partition_test::test_what_one_large_block_leaves_is_shared_equally",
        ),
    ),
    *of_file(
        "towers/layout/stages.py",
        (
            "math.gcd(batch_size, self.micro_batches)",
            "min(batch_size, self.micro_batches)",
            "layout/stages_test::test_micro_batches_divide_the_batch",
        ),
        (
            "if self.chunks > 1 and not SCHEDULES",
            "if self.chunks > 2 and not SCHEDULES",
            "layout/stages_test::test_pipelines_that_there_are_not",
        ),
        (
            "for backward in ((False, True) if training else (False,))",
            "for backward in (False, True)",
            "layout/stages_test::test_evaluation_goes_forward_only",
        ),
    ),
    *of_file(
        "towers/layout/shards.py",
        (
            "axis = 0 if last.transposed else 1",
            "axis = 0",
            "layout/shards_test::test_the_layer_that_is_last",
        ),
        (
            "return tied and last.transposed",
            "return tied",
            "layout/shards_test::test_a_table_that_is_the_classifier_is_spread_for_both_uses",
        ),
        (
            "if count > length:",
            "if count > length + 1:",
            "layout/shards_test::test_what_cannot_be_spread_is_refused",
        ),
    ),
    *of_file(
        "towers/layout/placement.py",
        (
            "if not groups or groups[-1][0] != host:",
            "if not groups:",
            "layout/placement_test::test_groups_follow_the_hosts",
        ),
        (
            "client=spec.clients.index(spec.me),",
            "client=spec.me.index,",
            "layout/placement_test",
        ),
        (
            "counters=where.parameters[0],",
            "",
            "layout/placement_test::test_a_client_has_towers_on_its_own_task",
        ),
        (
            "allow_soft_placement=False,",
            "allow_soft_placement=True,",
            "layout/placement_test::test_placement_is_hard",
        ),
        (
            "return 1 if max(tasks.values()) >= cores() > 1 else 0",
            "return 1 if sum(tasks.values()) >= cores() > 1 else 0",
            "layout/placement_test::test_towers_of_other_processes_do_not_share_a_core",
        ),
        (
            "hosts=where.hosts[::num_stages],",
            "hosts=where.hosts[: len(where.hosts) // num_stages],",
            "layout/placement_test::test_stages_over_the_workers_of_a_cluster",
        ),
        (
            "config.device_filters.extend(dict.fromkeys(tasks))",
            "",
            "layout/placement_test::test_a_client_has_towers_on_its_own_task",
        ),
    ),
    *of_file(
        "towers/layout/cluster_spec.py",
        (
            '"master": "chief",',
            '"master": "worker",',
            "layout/cluster_spec_test::test_master_is_an_old_name_of_the_chief",
        ),
        (
            'return _CHIEF if "chief" in self.jobs else Task("worker", 0)',
            'return Task("worker", 0)',
            "layout/cluster_spec_test::test_roles",
        ),
        (
            "followers = [task for task in workers if task != self.controller]",
            "followers = workers",
            "layout/cluster_spec_test::test_between_graph_roles",
        ),
        (
            'order = ("ps", "worker", "chief")',
            'order = ("worker", "ps", "chief")',
            "layout/cluster_spec_test::test_by_flags",
        ),
        (
            "0 < int(match[2]) < 2**16",
            "0 <= int(match[2]) < 2**16",
            "layout/cluster_spec_test::test_refuses",
        ),
        (
            'flags.replication == "between_graph" and not evaluates',
            'flags.replication == "between_graph"',
            "layout/cluster_spec_test::test_between_graph_roles",
        ),
        (
            "expected = self.flags if task in self.clients else ()",
            "expected = self.flags",
            "layout/cluster_spec_test::test_the_controller_says_in_what_clients_disagree",
        ),
    ),
    *of_file(
        "towers/layout/schedule.py",
        (
            "ahead = 2 * (stages - 1 - stage) + (chunks - 1) * stages",
            "ahead = (stages - 1 - stage) + (chunks - 1) * stages",
            "layout/schedule_test::test_activations_held",
        ),
        (
            "needed += [pass_._replace(micro_batch=k, leg=leg - 1) for k in meet]",
            "needed += [pass_._replace(leg=leg - 1)]",
            "layout/schedule_test::test_only_what_gathers_can_meet",
        ),
        (
            "return steps / max(steps + stages - 1, chunks * stages + "
            "micro_batches - 1)",
            "return steps / (steps + stages - 1)",
            "layout/schedule_test::test_the_time_is_that_of_the_formula",
        ),
        (
            "for m in range(first, first + stages)\n",
            "for m in range(first, min(first + stages, micro_batches))\n",
            "layout/schedule_test::test_every_pass_runs_once_after_what_it_needs",
        ),
        (
            "meet = range(legs.meeting) if legs.meeting else [m]",
            "meet = range(m + 1) if legs.meeting else [m]",
            "layout/schedule_test::test_only_what_gathers_can_meet",
        ),
        (
            "begin = max([free[stage], *waits])",
            "begin = max([0.0, *waits])",
            "layout/schedule_test::test_the_time_is_that_of_the_formula",
        ),
    ),
    *of_file(
        "towers/layout/placement.py",
        (
            '        config.device_count["GPU"] = 0',
            "",
            "layout/placement_test::test_placement_is_hard",
        ),
        (
            "towers=devices[::num_stages],",
            "towers=devices[: len(devices) // num_stages],",
            "layout/placement_test::test_neighbours_are_the_stages_of_a_tower",
        ),
        (
            "if len(self.devices) == len(self.towers) or self.is_cluster:",
            "if len(self.devices) == len(self.towers):",
            "layout/placement_test::test_shards_of_a_cluster_are_on_its_tasks",
        ),
    ),
    *of_file(
        "towers/layout/parts.py",
        (
            "axis = sizes.index(max(sizes))",
            "axis = 0",
            "layout/parts_test::test_as_few_as_are_small_enough",
        ),
        (
            "if variable.axis:\n        values = tf.split",
            "if False:\n        values = tf.split",
            "layout/parts_test::test_divides_a_sparse_gradient",
        ),
        (
            "whole[self.axis] = sum(self.sizes)",
            "whole[self.axis] = sum(self.sizes[:-1])",
            "layout/parts_test::test_only_known_wholes_are_joined",
        ),
    ),
    *of_file(
        "towers/layout/stages.py",
        (
            "(chunk % self.stages, Pass(chunk, m, backward))",
            "(chunk // self.chunks, Pass(chunk, m, backward))",
            "layout/stages_test::test_order_is_that_of_the_schedule",
        ),
    ),
]
