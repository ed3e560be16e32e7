"""Tests of flags.cluster: how tasks are written, and what goes together."""

from absl.testing import parameterized

from flags import cluster, config, parse


def errors(**settings):
    problems = config.check(config.make(**settings), {})
    return [problem.sentence() for problem in problems]


class ParseTasksTest(parameterized.TestCase):
    def test_counts_of_each_job(self):
        self.assertEqual(cluster.parse_tasks("ps:1,worker:2"), {"ps": 1, "worker": 2})
        self.assertEqual(cluster.parse_tasks("worker:12"), {"worker": 12})
        self.assertEqual(cluster.parse_tasks("ps:0,worker:2"), {"worker": 2})

    @parameterized.parameters(
        "", "ps:1", "worker:0", "worker", "worker:x", "worker:1,worker:2", "chief:1"
    )
    def test_refuses(self, text):
        with self.assertRaisesRegex(ValueError, "^(must say|needs a worker)"):
            cluster.parse_tasks(text)
        with self.assertRaisesRegex(ValueError, "999 at most"):
            cluster.parse_tasks("ps:1,worker:1000")
        self.assertStartsWith(errors(local_cluster=text)[0], "--local_cluster")


WORKERS = {"worker_hosts": ("a:1", "b:1")}


class RulesTest(parameterized.TestCase):
    @parameterized.parameters(
        {"local_cluster": "ps:1,worker:2", "max_restarts": 0, "allow_open_ports": True},
        {"job_name": "ps", "ps_hosts": ("c:1",), **WORKERS},
        {"job_name": "worker", "task_index": 1, **WORKERS},
        {"job_name": "controller", "controller_host": "d:1", **WORKERS},
        {"job_name": "evaluator", "train_dir": "/tmp"},
        {"stall_secs": 5, "wait_secs": 5},  # with TF_CONFIG
    )
    def test_goes(self, **settings):
        self.assertEqual(errors(**settings), [])

    @parameterized.parameters("ps_hosts", "worker_hosts")
    def test_an_empty_entry_is_no_task(self, name):
        for text, sentence in (
            ("a:1,b:1,", "entry 3 of 3 is empty; take out the comma"),
            (",a:1", "entry 1 of 2 is empty; take out the comma"),
            ("a:1, ,b:1", "entry 2 of 3 is empty; take out the comma"),
            (" ", "must not be empty; leave the flag out instead"),
        ):
            with self.assertRaises(parse.UsageError) as caught:
                parse.parse(["train", "--job_name=ps", f"--{name}={text}"], {})
            said = [each for each in caught.exception.errors if name in each]
            self.assertLen(said, 1)
            self.assertEndsWith(said[0], f": {sentence}")
        hosts = [f"--{each}=a:1, b:1 " for each in ("ps_hosts", "worker_hosts")]
        settings = parse.parse(["train", "--job_name=ps", *hosts], {})
        self.assertEqual(getattr(settings.cluster, name), ("a:1", "b:1"))
