"""Faults in `towers/session/`: evaluation sums, due steps, speeds, resumption."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/evaluation/eval_graph.py",
        (
            "-(-limit // per_step)",
            "limit // per_step",
            "evaluation/eval_graph_test::test_each_example_once",
        ),
        (
            "total / total_weight for",
            "total / graph.num_steps for",
            "evaluation/eval_graph_test::test_each_example_once",
        ),
        (
            '[{"total_weight": tf.constant(1.0)}]',
            '[{"total_weight": tf.constant(2.0)}]',
            "evaluation/eval_graph_test::test_each_example_once",
        ),
        (
            "limit = num_examples or source.num_examples",
            "limit = source.num_examples",
            "evaluation/eval_graph_test::test_each_example_once",
        ),
        (
            "return self._mode.latest(name, tower)",
            "return self._mode.read(name, tower)",
            "evaluation/eval_graph_test",
        ),
        (
            "if average is None:",
            "if True:",
            "evaluation/eval_graph_test::test_in_a_train_graph",
        ),
        (
            "if index + 1 < graph.num_steps and stopped():",
            "if stopped():",
            "evaluation/eval_graph_test",
        ),
    ),
    *of_file(
        "towers/session/loop.py",
        (
            "restore(session)\n    session.run(train.sync)",
            "session.run(train.sync)\n    restore(session)",
            "session/loop_test::test_variables_then_checkpoint_then_replicas_then_input",
        ),
        (
            "session.run(train.feed.initializer)",
            "",
            "session/loop_test::test_variables_then_checkpoint_then_replicas_then_input",
        ),
        (
            "return max(0, -(-left // train.examples_per_step))",
            "return max(0, left // train.examples_per_step)",
            "session/loop_test::test_steps_left",
        ),
        (
            "inside = min(steps.most_inside, last_step - step, seen - 1 - step)",
            "inside = min(steps.most_inside, last_step - step, seen - step)",
            "session/loop_test::test_steps_run_inside_the_graph_between_those_that_a_hook_must",
        ),
        (
            "inside = min(steps.most_inside, last_step - step, seen - 1 - step)",
            "inside = min(steps.most_inside, seen - 1 - step)",
            "session/loop_test::test_steps_run_inside_the_graph_between_those_that_a_hook_must",
        ),
    ),
    *of_file(
        "towers/session/device_loop.py",
        (
            "losses.write(index, loss_now)",
            "losses.write(index * 0, loss_now)",
            "session/device_loop_test::test_losses_arrive_with_their_steps",
        ),
    ),
    *of_file(
        "towers/session/hooks.py",
        (
            "step - len(losses) + 1 + index",
            "step - len(losses) + index",
            "session/hooks_test",
        ),
        (
            "if self.next_due(step - 1) == step:",
            "if self.next_due(step) == step + 1:",
            "session/hooks_test::test_by_steps",
        ),
        (
            "accuracy >= self._stop_at",
            "accuracy > self._stop_at",
            "session/hooks_test::test_stops_at_the_accuracy",
        ),
        (
            "due = [s for s in at if s > step]",
            "due = [s for s in at if s >= step]",
            "session/hooks_test::test_by_steps",
        ),
        (
            "math.ceil(times * steps - _ROUNDING)",
            "math.floor(times * steps - _ROUNDING)",
            "session/hooks_test::test_by_steps",
        ),
        (
            "if not math.isfinite(loss):",
            "if math.isnan(loss):",
            "session/hooks_test",
        ),
        (
            "if step == self._first:",
            "if step == 1:",
            "session/hooks_test::test_nor_for_the_first_loss_after_a_checkpoint",
        ),
    ),
    *of_file(
        "towers/session/progress.py",
        (
            'values.pop("penalty", 0.0)',
            '0 * values.pop("penalty", 0.0)',
            "session/progress_test",
        ),
        (
            "self._first_timed = max(self._warmup, step + 1)",
            "self._first_timed = self._warmup",
            "session/progress_test::test_a_resumed_process_does_not_time_its_first_call",
        ),
        (
            "shown == 1 or (shown > 0 and shown % self._every == 0)",
            "shown > 0 and shown % self._every == 0",
            "session/progress_test::test_warm_up_steps_are_neither_timed_nor_shown",
        ),
        (
            "step - self._warmup,\n                speed,",
            "step,\n                speed,",
            "session/progress_test::test_warm_up_steps_are_neither_timed_nor_shown",
        ),
        (
            "time.perf_counter() - self._wall - self._paused",
            "time.perf_counter() - self._wall",
            "session/progress_test::test_other_hooks_count_and_pauses_do_not",
        ),
    ),
    *of_file(
        "towers/session/make_hooks.py",
        (
            "return min(max(warm, self.begin + 2), self.last_step)",
            "return max(warm, self.begin + 2)",
            "session/make_hooks_test::test_is_warm_and_within_the_run",
        ),
        (
            "    _save_checkpoints,\n    _evaluate,\n)",
            "    _evaluate,\n    _save_checkpoints,\n)",
            "session/make_hooks_test::test_a_step_is_looked_at_before_it_is_saved_and_saved",
        ),
    ),
    *of_file(
        "towers/session/report.py",
        (
            "self._speeds += steps * speed",
            "self._speeds += speed",
            "session/report_test::test_speeds_are_taken_over_the_least_time",
        ),
        (
            "math.sqrt(max(0.0, variance) / count)",
            "math.sqrt(max(0.0, variance))",
            "session/report_test::test_speed",
        ),
        ("1.4826 * np.median(spread)", "np.median(spread)", "session/report_test"),
        (
            "if rate * work > peak:",
            "if rate > peak:",
            "session/report_test::test_utilization_is_a_share_or_unknown",
        ),
        (
            "work / unit.per_example / 1e6",
            "work / 1e6",
            "session/report_test",
        ),
    ),
    *of_file(
        "towers/session/replicas.py",
        (
            "return tf.bitcast(variable.read_value(), tf.uint8)",
            "return variable.read_value()",
            "session/replicas_test::test_nan_equals_itself",
        ),
        (
            "for tower, other in enumerate(copies, start=1):",
            "for tower, other in enumerate(copies[:1], start=1):",
            "session/replicas_test::test_one_bit_is_found_and_named",
        ),
    ),
    *of_file(
        "towers/session/stop.py",
        (
            "return Interrupted(self.received).status if self.received else 0",
            "return 0",
            "session/stop_test",
        ),
        (
            "self.insisted |= now - self._first > ECHO_SECONDS",
            "self.insisted |= now > self._first",
            "session/stop_test::test_a_second_signal_is_no_echo_of_the_first",
        ),
        (
            "for number, handler in self._previous.items():",
            "for number, handler in {}.items():",
            "session/stop_test::test_the_loop_ends_after_the_step",
        ),
    ),
    *of_file(
        "towers/session/summary.py",
        (
            "finite = tf.boolean_mask(values, tf.math.is_finite(values))",
            "finite = values",
            "session/summary_test::test_gradients_of_two_dtypes_that_are_not_all_finite",
        ),
        (
            '"learning_rate": train.learning_rate,',
            '"learning_rate": train.total_loss,',
            "session/summary_test::test_scalars",
        ),
    ),
    *of_file(
        "towers/session/traffic.py",
        (
            "before.bytes + sum(sizes),",
            "sum(sizes),",
            "session/traffic_test::test_what_the_graph_does_not_know_is_said",
        ),
        (
            "by_pair[there, here][tensor.name] = tensor",
            "by_pair[there, here][op.name] = tensor",
            "session/traffic_test::test_is_what_a_session_sends",
        ),
    ),
    *of_file(
        "towers/session/follower.py",
        (
            "if run_values.results != self._stamp + 1:",
            "if run_values.results <= self._stamp:",
            "session/follower_test::test_goes_on_while_each_token_is_the_next",
        ),
    ),
]
