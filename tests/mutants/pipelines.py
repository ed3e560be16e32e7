"""Faults in `towers/pipelines/`: order, sums, recomputation, memory, costs."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/pipelines/pipeline.py",
        (
            "return self._sum(value) / len(self.values)",
            "return self._sum(value)",
            "pipelines/pipeline_test::test_statistics_are_the_mean_over_the_micro_batches",
        ),
        (
            "if pass_.backward and pass_.micro_batch:",
            "if pass_.backward and pass_.micro_batch > 1:",
            "pipelines/pipeline_test::test_every_schedule_and_recomputation",
        ),
        (
            "after=None if pinned else self._last[stage],",
            "after=None,",
            "pipelines/pipeline_test::test_a_pass_is_one_call_after_the_one_before_it_on_its",
        ),
        (
            "tf.range(count, dtype=tf.int64) * size",
            "tf.range(count, dtype=tf.int64)",
            "pipelines/pipeline_test::test_every_schedule_and_recomputation",
        ),
        (
            "dense, dtype = [], tf.float32 if len(self.values) > 1 else None",
            "dense, dtype = [], None",
            "pipelines/pipeline_test::test_tied_blocks_in_16_bits_add_up_micro_batches_in_32",
        ),
        (
            "flops=pipeline.micro_batches * sum(s.flops for s in segments),",
            "flops=sum(s.flops for s in segments),",
            "pipelines/pipeline_test::test_work_is_that_of_the_whole_tower",
        ),
        (
            "self._stamps if joint.towers > 1 else self._stamps[index : index + 1]",
            "self._stamps[index : index + 1]",
            "pipelines/stages_equivalence_test::test_batch_norm_of_micro_batches_as_one",
        ),
    ),
    *of_file(
        "towers/pipelines/chunk.py",
        (
            "values[total] = values[total] + gradient if add else gradient",
            "values[total] = gradient",
            "pipelines/chunk_test::test_later_micro_batches_add_to_the_sums",
        ),
        (
            "gradient = tf.cast(gradient, tf.float32)",
            "pass",
            "pipelines/pipeline_test::test_tied_blocks_in_16_bits_add_up_micro_batches_in_32",
        ),
        (
            "with tf.control_dependencies([*upstream, *before_it]):",
            "with tf.control_dependencies([]):",
            "pipelines/chunk_test::test_recomputing_waits",
        ),
        (
            "sparse = tuple(name for name, counts in parts.items() if counts == [2])",
            "sparse = tuple(name for name, counts in parts.items() if 2 in counts)",
            "pipelines/chunk_test pipelines/pipeline_test::test_tied_blocks",
        ),
    ),
    *of_file(
        "towers/pipelines/calls.py",
        (
            'node.input.append(f"^{after}")',
            "pass",
            "pipelines/calls_test::test_name_device_and_order_are_those_said",
        ),
        (
            "stateful = any(op.op_def.is_stateful for",
            "stateful = all(op.op_def.is_stateful for",
            "pipelines/calls_test::test_only_what_has_a_state_is_called_as_such",
        ),
    ),
    *of_file(
        "towers/pipelines/segment_gradients.py",
        (
            "with tf.device(gradient.device or part):",
            "with tf.device(part):",
            "pipelines/segment_gradients_test::test_a_part_stays",
        ),
    ),
    *of_file(
        "towers/pipelines/recompute.py",
        (
            "return -(-size // grain) * grain",
            "return size // grain * grain",
            "pipelines/recompute_test::test_bytes_are_rounded_up",
        ),
        (
            "flops=_work(again[number].backward) - _work(plain[number].backward),",
            "flops=_work(again[number].backward),",
            "pipelines/recompute_test",
        ),
        (
            "held = schedule.held([pass_ for pass_ in passes if pass_.chunk == c])",
            "held = schedule.held(passes)",
            "pipelines/recompute_test",
        ),
        (
            "fixed=size + (0 if stage else batch_bytes),",
            "fixed=size,",
            "pipelines/recompute_test::test_is_the_best_of_all_choices",
        ),
        (
            "each = {name: 1 + slots + several * (uses[name] > 1) for name in shapes}",
            "each = {name: 1 + slots for name in shapes}",
            "pipelines/recompute_test::test_is_the_best_of_all_choices",
        ),
    ),
    *of_file(
        "towers/pipelines/recompute_choice.py",
        (
            "max(passing, block.passing[again]),",
            "passing + block.passing[again],",
            "pipelines/recompute_choice_test",
        ),
        (
            "passing = self.passing + block.gradients",
            "passing = self.passing",
            "pipelines/recompute_choice_test::test_the_gradients_of_later_blocks_are_there_when_a_block",
        ),
    ),
    *of_file(
        "towers/pipelines/liveness.py",
        (
            "self._users[memory] == 1 and size(tensor) == size(output):",
            "size(tensor) == size(output):",
            "pipelines/liveness_test",
        ),
        (
            "waiting_bytes = max(meeting * before, before + (meeting - 1) * after)",
            "waiting_bytes = before",
            "pipelines/liveness_test::test_what_waits_between_legs_counts_for_every_micro_batch",
        ),
        (
            " + (output.name in self._outputs)",
            "",
            "pipelines/liveness_test",
        ),
    ),
    *of_file(
        "towers/pipelines/cutting.py",
        (
            "memory_limit=(flags.memory_limit or 0) * 10**6,",
            "memory_limit=(flags.memory_limit or 0) * 2**20,",
            "pipelines/cutting_test",
        ),
        (
            "if pieces <= len(blocks):",
            "if pieces <= len(blocks) + 1:",
            "pipelines/cutting_test::test_what_cannot_be_cut",
        ),
        (
            "chunks = flags.chunks_per_stage if row.interleaves else 1",
            "chunks = flags.chunks_per_stage",
            "pipelines/cutting_test::test_chunks_are_for_the_schedule_that_interleaves",
        ),
    ),
    *of_file(
        "towers/pipelines/costs.py",
        (
            "right = blocks == list(names) and len(seconds) == len(names)",
            "right = len(seconds) == len(names)",
            "pipelines/costs_test::test_a_file_that_cannot_be_read_is_measured_again",
        ),
        (
            "seconds * kept / (total or 1.0)",
            "seconds",
            "pipelines/costs_test::test_the_time_of_a_block_that_is_spread_is_that_of_the_rest",
        ),
    ),
    *of_file(
        "towers/pipelines/spans.py",
        (
            'way == "backward"',
            'way == "forward"',
            "pipelines/spans_test::test_every_pass_of_every_tower_in_its_order",
        ),
    ),
    *of_file(
        "towers/pipelines/chain.py",
        (
            "if any(y.graph is not here for y in tensors):",
            "if all(y.graph is not here for y in tensors):",
            "pipelines/chain_test::test_what_no_block_can_read_is_told_as_of_a_whole_model",
        ),
    ),
    *of_file(
        "towers/pipelines/calls.py",
        (
            "config = v1.ConfigProto(allow_soft_placement=False)",
            "config = v1.ConfigProto(allow_soft_placement=True)",
            "pipelines/calls_test::test_name_device_and_order_are_those_said",
        ),
    ),
    *of_file(
        "towers/pipelines/pipeline.py",
        (
            "return deterministic_sum.sum_in_order(dense)",
            "return dense[0]",
            "pipelines/pipeline_test::test_tied_blocks_in_16_bits_add_up_micro_batches_in_",
        ),
        (
            'total = self._sums[chunk.number][f"sum{chunk.number}/{variable}"]',
            'total = self._sums[chunk.number][f"sum{chunk.number}/{self._'
            'template.trainable[0]}"]',
            "pipelines/pipeline_test::test_every_schedule_and_recomputation",
        ),
    ),
    *of_file(
        "towers/pipelines/chunk.py",
        (
            "    if not segment.recomputed:\n        return values\n",
            "    return values\n",
            "pipelines/chunk_test::test_recomputing_waits_for_the_gradient_from_above",
        ),
    ),
    *of_file(
        "towers/pipelines/chain.py",
        (
            "if tf.is_tensor(item):\n"
            "                after.add_to_collection(name, item)",
            "if False:\n                after.add_to_collection(name, item)",
            "pipelines/chain_test::test_a_loss_of_what_blocks_collected",
        ),
    ),
    *of_file(
        "towers/pipelines/recompute.py",
        (
            "batch_bytes = nests.num_bytes(features) * (1 + several)",
            "batch_bytes = nests.num_bytes(features)",
            "pipelines/recompute_test::test_is_the_best_of_all_choices",
        ),
        (
            "uses[name] += 1 if _is_sparse(stage_block, name) else 2",
            "uses[name] += 1",
            "pipelines/recompute_test::test_is_the_best_of_all_choices",
        ),
        (
            'maker = number - 1 if name.startswith(f"x{number}/") else number',
            "maker = number",
            "pipelines/recompute_test::test_a_choice_is_made_once_and_only_where_it_is_open",
        ),
        (
            "bytes=tuple(c.bytes + stage.fixed for c, stage in zip(choices, stages)),",
            "bytes=tuple(c.bytes for c in choices),",
            "pipelines/recompute_test::test_is_the_best_of_all_choices",
        ),
    ),
    *of_file(
        "towers/pipelines/spans.py",
        (
            "return sorted(spans, key=lambda span: (span.begin, span.end))",
            "return spans",
            "pipelines/spans_test::test_every_pass_of_every_tower_in_its_order",
        ),
    ),
]
