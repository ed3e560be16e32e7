"""The flags of clusters: which task this process is, and what happens if one is lost.

The variable `TF_CONFIG`, as Kubernetes' TFJob writes it, can replace the first five.
"""

import dataclasses
import re
from typing import ClassVar

from flags.field import AT_LEAST_0, AT_LEAST_1, field

JOBS = ("ps", "worker", "controller", "chief", "evaluator")


@dataclasses.dataclass(frozen=True)
class ClusterFlags:
    """Which task of a cluster this process is."""

    common: ClassVar[tuple[str, ...]] = ("local_cluster",)

    job_name: str | None = field(
        None,
        "the job of this task; the session runs in the controller, or chief, and where "
        "there is none in worker 0",
        unset="no cluster",
        choices=JOBS,
    )
    task_index: int = field(0, "the number of this task in its job", must=AT_LEAST_0)
    ps_hosts: tuple[str, ...] = field(
        (), "host:port of each task that holds variables", unset="none"
    )
    worker_hosts: tuple[str, ...] = field(
        (), "host:port of each task that runs num_gpus towers", unset="none"
    )
    controller_host: str | None = field(
        None, "host:port of the controller", unset="worker 0 is the controller"
    )
    replication: str = field(
        "in_graph",
        "in_graph: the controller builds one graph with the towers of all workers; "
        "between_graph: each worker builds a graph of its own towers, and worker 0 is "
        "the chief",
        choices=("in_graph", "between_graph"),
    )
    local_cluster: str | None = field(
        None,
        "start all tasks on this machine, in a private network: ps:1,worker:2 starts "
        "these and a controller",
        unset="no cluster",
    )
    allow_open_ports: bool = field(
        False,
        "let the local cluster use this machine's network, where anyone who reaches "
        "its ports can run any code",
    )
    max_restarts: int = field(
        3,
        "times that the local cluster restarts a task that was killed",
        must=AT_LEAST_0,
    )
    stall_secs: int = field(
        60,
        "seconds without a step after which tasks that do not answer are named and "
        "given up as lost",
        must=AT_LEAST_1,
    )
    wait_secs: int = field(
        600,
        "seconds to wait for tasks, at the start and when one is lost, before the run "
        "ends with an error",
        must=AT_LEAST_1,
    )
    stop_grace_secs: int = field(
        30,
        "seconds that a ps or worker still serves after SIGTERM or another signal, so "
        "that the controller, which may have got it too, can save and end all tasks",
        must=AT_LEAST_0,
    )

    cluster_token_file: str | None = field(
        None,
        "a file with a secret that all tasks of the cluster must have, of 16 bytes or "
        "more, which only its owner can read; a task that has another one is not used",
        unset="no secret",
    )
    elastic: str = field(
        "false",
        "go on with the workers that are there when some are lost or join. "
        "keep_towers, or true: a lost worker's towers move to others, so every bit "
        "stays; keep_batch: the batch of a step is divided anew, over a tower on each "
        "device",
        choices=("false", "true", "keep_towers", "keep_batch"),
    )
    min_workers: int = field(
        1, "workers without which an elastic run waits", must=AT_LEAST_1
    )
    max_workers: int | None = field(
        None,
        "workers that an elastic run uses at most",
        unset="all that there are",
        must=AT_LEAST_1,
    )
    join: str | None = field(
        None,
        "host:port of the controller of an elastic run that this worker joins; its own "
        "address is then worker_hosts, or a free port of this host",
        unset="the controller knows this worker from worker_hosts",
    )
    memory_copy_steps: int = field(
        100,
        "steps between two copies of an elastic run's variables in the controller's "
        "memory, for when a step was lost half-way or a ps was; 0 for none",
        must=AT_LEAST_0,
    )
    replay_membership: str | None = field(
        None,
        "membership.jsonl of an earlier run: each step uses the gradients of the "
        "workers that it names, for the same bits",
        unset="the workers that are there",
    )

    @property
    def local_tasks(self) -> dict[str, int] | None:
        """`local_cluster` as job -> number of tasks, or None."""
        return None if self.local_cluster is None else parse_tasks(self.local_cluster)


def parse_tasks(text: str) -> dict[str, int]:
    """`ps:1,worker:2` as job -> number of tasks, without jobs that have none.

    Raises:
      ValueError: it is not written so, in words that follow the flag and its value.
    """
    tasks: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"(ps|worker):([0-9]{1,3})", part)
        if not match or match[1] in tasks:
            raise ValueError(
                "must say how many tasks of each job, 999 at most, as in ps:1,worker:2 "
                "or worker:2"
            )
        tasks[match[1]] = int(match[2])
    if not tasks.get("worker"):
        raise ValueError("needs a worker, as in ps:1,worker:1")
    return {job: count for job, count in tasks.items() if count}
