"""A command line is read and checked before anything begins."""

import os
from unittest import mock

from absl.testing import absltest

from towers import command_line
from towers.command_line import read_command_line
from towers.data import inputs


class CommandLineTest(absltest.TestCase):
    def test_clients_need_not_agree_in_what_is_their_own(self):
        flags = ["--ps_hosts=a:1", "--worker_hosts=c:1,d:1", "--job_name=worker"]
        agreed = ["--batch_size=8", "--model=mlp", "--num_gpus=2", "--recompute=block"]
        flags += [*agreed, "--device=cpu"]
        of_client = ["--display_every=3", "--num_intra_threads=1", "--stall_secs=9"]
        of_client += ["--pipeline_report=there"]
        between = "--replication=between_graph"
        for index, more in ((0, []), (1, of_client)):
            of_task = [*flags, f"--task_index={index}", *more]
            spec = read_command_line(["train", between, *of_task]).spec
            self.assertEqual(sorted(spec.flags), [*agreed, between])
        self.assertEqual(read_command_line(["train", *flags]).spec.flags, ())

    def test_workers_of_an_elastic_run_agree_in_what_they_run(self):
        agreed = ["--data_name=synthetic", "--model=mlp", "--num_gpus=2"]
        flags = [*agreed, "--elastic", "--worker_hosts=c:1", "--controller_host=d:1"]
        flags += ["--device=cpu", "--batch_size=8", "--num_batches=5"]
        for job in ("worker", "controller"):
            command = read_command_line(["train", *flags, f"--job_name={job}"])
            self.assertEqual(sorted(command.spec.flags), agreed)
            plan, number = command.plan, command.spec.num_examples
            self.assertEqual(number, plan and plan.source.num_examples)

    def test_the_process_is_settled_before_data_is_read(self):
        calls = mock.Mock()
        calls.get.side_effect = ValueError("no data")
        with (
            mock.patch.object(command_line, "settle_process", calls.settle),
            mock.patch.object(inputs, "get", calls.get),
        ):
            for flags in ([], ["--local_cluster=ps:1,worker:1"]):
                with self.assertRaisesRegex(ValueError, "no data"):
                    read_command_line(["train", "--device=cpu", *flags])
                self.assertEqual([c[0] for c in calls.mock_calls], ["settle", "get"])
                calls.reset_mock()

    def test_a_part_of_a_cluster_in_tf_config_means_elastic(self):
        tasks = '"ps": ["p:1"], "chief": ["c:1"], "worker": {"1": "w:1"}'
        task = '{"type": "worker", "index": 1}'
        config = f'{{"cluster": {{{tasks}}}, "task": {task}}}'
        with mock.patch.dict(os.environ, TF_CONFIG=config):
            command = read_command_line(["train", "--min_workers=2"])
            self.assertEqual(command.config.cluster.elastic, "true")
            self.assertTrue(command.cluster.elastic)
            command = read_command_line(["train", "--elastic=keep_batch"])
            self.assertEqual(command.config.cluster.elastic, "keep_batch")
            with self.assertRaisesRegex(ValueError, "elastic.*replication=between_gr"):
                read_command_line(["train", "--replication=between_graph"])
