"""Faults in `towers/pipelines/`: order, sums, recomputation, memory, costs."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/pipelines/pipeline.py",
        (
            "return self._sum(value) / len(self.values)",
            "return self._sum(value)",
            "pipeline_test::test_statistics_are",
        ),
        (
            "if one.backward and one.micro_batch:",
            "if one.backward and one.micro_batch > 1:",
            "pipeline_test::test_every_schedule",
        ),
        (
            "after=None if pinned else self._last[stage],",
            "after=None,",
            "pipeline_test::test_a_pass_is_one_call",
        ),
        (
            "offsets = tf.range(count, dtype=tf.int64) * size",
            "offsets = tf.range(count, dtype=tf.int64)",
            "pipeline_test::test_every_schedule",
        ),
        (
            "dense, dtype = [], tf.float32 if len(self.values) > 1 else None",
            "dense, dtype = [], None",
            "pipeline_test::test_tied_blocks_in_16_bits",
        ),
        (
            "flops=pipeline.micro_batches * sum(s.flops for s in segments),",
            "flops=sum(s.flops for s in segments),",
            "pipeline_test::test_work_is",
        ),
        (
            "self._stamps if joint.towers > 1 else self._stamps[index : index + 1]",
            "self._stamps[index : index + 1]",
            "stages_equivalence_test::test_batch_norm_of_micro_batches_as_one",
        ),
    ),
    *of_file(
        "towers/pipelines/chunk.py",
        (
            "values[total] = values[total] + gradient if add else gradient",
            "values[total] = gradient",
            "chunk_test::test_later_micro_batches",
        ),
        (
            "gradient = tf.cast(gradient, tf.float32)",
            "pass",
            "chunk_test pipeline_test::test_tied_blocks_in_16_bits",
        ),
        (
            "with tf.control_dependencies([*upstream, *before_it]):",
            "with tf.control_dependencies([]):",
            "chunk_test::test_recomputing_waits",
        ),
        (
            "sparse = tuple(name for name, counts in parts.items() if counts == [2])",
            "sparse = tuple(name for name, counts in parts.items() if 2 in counts)",
            "chunk_test pipeline_test::test_tied_blocks",
        ),
    ),
    *of_file(
        "towers/pipelines/calls.py",
        (
            'node.input.append(f"^{after}")',
            "pass",
            "calls_test::test_name_device_and_order",
        ),
        (
            "stateful = any(op.op_def.is_stateful for",
            "stateful = all(op.op_def.is_stateful for",
            "calls_test::test_only_what_has_a_state",
        ),
    ),
    *of_file(
        "towers/pipelines/gradients.py",
        (
            "elif part and _also_read_as_a_whole(by[name]):",
            "elif part and not by:",
            "gradients_test::test_a_table_in_parts",
        ),
    ),
    *of_file(
        "towers/pipelines/recompute.py",
        (
            "fixed=size + (0 if stage else batch_bytes),",
            "fixed=size,",
            "recompute_test",
        ),
        (
            "each = {name: 1 + slots + several * (uses[name] > 1) for name in shapes}",
            "each = {name: 1 + slots for name in shapes}",
            "recompute_test",
        ),
    ),
    *of_file(
        "towers/pipelines/choice.py",
        (
            "max(passing, block.passing[again]),",
            "passing + block.passing[again],",
            "choice_test::test_is_the_best",
        ),
        (
            "passing = self.passing + block.gradients",
            "passing = self.passing",
            "choice_test::test_the_gradients_of_later",
        ),
    ),
    *of_file(
        "towers/pipelines/liveness.py",
        (
            "self._users[memory] == 1 and size(tensor) == size(output):",
            "size(tensor) == size(output):",
            "liveness_test",
        ),
        (
            "others = max(meeting * before, before + (meeting - 1) * after)",
            "others = before",
            "liveness_test::test_what_waits",
        ),
        (
            " + (output.name in self._outputs)",
            "",
            "liveness_test::test_outputs_stay",
        ),
    ),
    *of_file(
        "towers/pipelines/cutting.py",
        (
            "memory_limit=(flags.memory_limit or 0) * 10**6,",
            "memory_limit=(flags.memory_limit or 0) * 2**20,",
            "cutting_test::test_settings_arrive",
        ),
        (
            "if pieces <= len(blocks):",
            "if pieces <= len(blocks) + 1:",
            "cutting_test::test_what_cannot_be_cut",
        ),
        (
            "chunks = flags.chunks_per_stage if row.interleaves else 1",
            "chunks = flags.chunks_per_stage",
            "cutting_test::test_chunks_are_for",
        ),
    ),
    *of_file(
        "towers/pipelines/costs.py",
        (
            "right = blocks == list(names) and len(seconds) == len(names)",
            "right = len(seconds) == len(names)",
            "costs_test::test_a_file_that_cannot",
        ),
        (
            "seconds * own / (of or 1.0)",
            "seconds",
            "costs_test::test_the_time_of_a_block",
        ),
    ),
    *of_file(
        "towers/pipelines/spans.py",
        ('way == "backward"', 'way == "forward"', "spans_test"),
    ),
    *of_file(
        "towers/pipelines/chain.py",
        (
            "if any(y.graph is not here for y in found):",
            "if all(y.graph is not here for y in found):",
            "chain_test",
        ),
    ),
]
