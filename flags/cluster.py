"""The flags of clusters: which task this process is, and what happens if one is lost.

The variable `TF_CONFIG`, as Kubernetes' TFJob writes it, can replace the first five.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from flags.field import AT_LEAST_0, AT_LEAST_1, field
from flags.problem import Problem

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
    shared_train_dir: bool = field(
        False,
        "refuse a train_dir that not every ps and worker sees, as a controller that is "
        "started again on another machine would begin anew there",
    )
    elastic: str = field(
        "false",
        "go on with the workers that are there when some are lost or join. "
        "keep_towers, or true: a lost worker's towers move to others, so every bit "
        "stays; keep_batch: the batch of a step is divided anew, over a tower on each "
        "device; scale_lr: the batch of a tower stays, and learning rates are "
        "proportional to the number of workers",
        choices=("false", "true", "keep_towers", "keep_batch", "scale_lr"),
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
    backup_workers: int = field(
        0,
        "workers that a step does not wait for: it is taken when the gradients of all "
        "others are complete, and those that are late are dropped",
        must=AT_LEAST_0,
    )
    dropped_examples: str = field(
        "skip",
        "the examples of dropped gradients. skip: they are left out, and counted; "
        "replay: their worker takes them again until they are used",
        choices=("skip", "replay"),
    )
    replay_membership: str | None = field(
        None,
        "membership.jsonl of an earlier run: each step uses the gradients of the "
        "workers that it names, for the same bits",
        unset="the workers that are there",
    )

    @property
    def elasticity(self) -> str:
        """`elastic`, with "" for false and `keep_towers` for true."""
        return {"false": "", "true": "keep_towers"}.get(self.elastic, self.elastic)

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


def problems(flags: Mapping[str, Any]) -> Iterator[Problem]:
    """Which tasks there are, and which of them this is.

    Args:
      flags: those that are given.
    """
    if "local_cluster" in flags:
        try:
            parse_tasks(flags["local_cluster"])
        except ValueError as error:
            yield Problem("local_cluster", flags["local_cluster"], str(error))
    elif "job_name" in flags:
        yield from _task(flags)
    least, most = flags.get("min_workers", 1), flags.get("max_workers")
    if most and least > most:
        yield Problem("min_workers", least, f"is above `max_workers={most}`")


def _task(flags: Mapping[str, Any]) -> Iterator[Problem]:
    """The flags that a task of a job needs, and whether its index is one of the job."""
    job = flags["job_name"]
    if "join" in flags:
        return
    hosts = {"ps": "ps_hosts", "worker": "worker_hosts"}.get(job, "controller_host")
    needed = {"worker_hosts", hosts} if job != "evaluator" else {"train_dir"}
    if "max_workers" in flags and job != "worker":  # all workers may join
        needed.discard("worker_hosts")
    for name in sorted(needed):
        if name not in flags:
            yield Problem("job_name", job, f"needs `{name}`")
    index = flags.get("task_index", 0)
    count = len(flags.get(hosts, ())) if job in ("ps", "worker") else 1
    if index >= max(count, 1):
        of_job = "1 task" if count == 1 else f"{count} tasks"
        words = f"`job_name={job}` has {of_job}, counted from 0"
        yield Problem("task_index", index, words)
