"""The tasks of a cluster, and which of them this process is.

    spec = find(config.cluster, os.environ)
    spec.me, spec.controller, spec.role

A *task* is one process with a server; a *job* (`ps`, `worker`, `chief`) is a list of
tasks.  The controller is the task that builds the graph and runs the session: the
chief, or worker 0 in a cluster without a chief.  The other tasks are servers.  In
between-graph replication the workers, and the chief if there is one, are clients with a
graph of their own, and follow the controller.

Nothing here opens a port or executes what is read.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flags.cluster import ClusterFlags
from flags.problem import SettingError, wrong_setting
from towers.layout import cluster_token, tf_config

# The roles of a process.
CONTROLLER, SERVER, EVALUATOR = "controller", "server", tf_config.EVALUATOR
FOLLOWER = "follower"  # a client, but not the controller
LAUNCHER = "launcher"  # of a local cluster


class Task(NamedTuple):
    """One task."""

    job: str
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.job} {self.index}"


_CHIEF = Task("chief", 0)

# Settings about other tasks, which a process without them refuses.
_OF_OTHERS = (
    *("stall_secs", "wait_secs", "stop_grace_secs", "replication"),
    *("cluster_token_file", "shared_train_dir", "elastic"),
)


@dataclasses.dataclass(frozen=True)
class ClusterSpec:
    """The tasks of a cluster, seen from one of them.

    Attributes:
      jobs: job -> host:port of each of its tasks, in the order `ps`, `worker`, `chief`.
      me: this process.
      launches: whether this process is not a task, but starts all of them.
      between: whether each worker is a client (between-graph replication).
      flags: of a client's command line, those that must be equal for all clients; of
        an elastic run's controller or worker, those that must be equal for all these.
      num_examples: of the data set that this task reads, of a controller or worker in
        an elastic run; None if it is not known.
      token: the secret of the cluster; empty if it has none.
      elastic: whether workers come and go, so that servers know only themselves.
      absent: indices of the workers that take no part now.
      places: of an elastic run whose workers all join: how many there may be.

    Raises:
      ValueError: an address is wrong or occurs twice, or this task is not in the list.
    """

    jobs: Mapping[str, tuple[str, ...]]
    me: Task
    launches: bool = False
    between: bool = False
    flags: tuple[str, ...] = ()
    token: bytes = dataclasses.field(default=b"", repr=False)
    elastic: bool = False
    absent: frozenset[int] = frozenset()
    places: int = 0
    num_examples: int | None = None

    def __post_init__(self) -> None:
        if not (self.workers or self.elastic or self.me.job == EVALUATOR):
            raise ValueError(
                "a cluster needs a worker; where all workers join, give every task "
                "--elastic and --max_workers"
            )
        if len(self.jobs.get("chief", ())) > 1:
            raise ValueError("a cluster has one chief")
        if self.between and not self.jobs.get("ps") and self.me.job != EVALUATOR:
            raise wrong_setting(
                "replication",
                "between_graph",
                "clients share their variables on ps tasks, and there is none",
                "give `ps_hosts`, or ps:1 in `local_cluster`",
            )
        seen = set()
        for job, addresses in self.jobs.items():
            for index, address in enumerate(addresses):
                if fault := address_fault(address):
                    raise ValueError(
                        f"{Task(job, index)} has the address {address[:80]!r}, which "
                        f"{fault}"
                    )
                host, _, port = address.lower().rpartition(":")  # case does not matter
                if (host, int(port)) in seen:
                    raise ValueError(f"{address} is the address of two tasks")
                seen.add((host, int(port)))
        count = len(self.jobs.get(self.me.job, ()))
        if self.me.job != EVALUATOR and not 0 <= self.me.index < count:
            raise ValueError(_no_such_task(self.me, count))

    @property
    def controller(self) -> Task:
        """The task that runs the session."""
        return _CHIEF if "chief" in self.jobs else Task("worker", 0)

    @property
    def role(self) -> str:
        """The role of this process."""
        if self.launches:
            return LAUNCHER
        if self.me.job == EVALUATOR:
            return EVALUATOR
        if self.me == self.controller:
            return CONTROLLER
        return FOLLOWER if self.between and self.me in self.clients else SERVER

    @property
    def workers(self) -> list[Task]:
        """The workers that take part, or may, if none is known yet."""
        every = range(len(self.jobs.get("worker", ())) or self.places)
        return [Task("worker", i) for i in every if i not in self.absent]

    @property
    def clients(self) -> list[Task]:
        """The tasks with a graph of their own, the controller first."""
        followers = [task for task in self.workers if task != self.controller]
        return [self.controller, *(followers if self.between else ())]

    @property
    def with_towers(self) -> list[Task]:
        """The tasks that run towers; none if an evaluator does not know them."""
        return self.clients if self.between and self.workers else self.workers

    @property
    def servers(self) -> list[Task]:
        """All tasks that take part and are known, but the controller."""
        ps = [Task("ps", i) for i in range(len(self.jobs.get("ps", ())))]
        workers = self.workers if self.jobs.get("worker") else []
        return [task for task in (*ps, *workers) if task != self.controller]

    def address(self, task: Task) -> str:
        """Its host:port."""
        return self.jobs[task.job][task.index]

    def as_dict(self) -> dict[str, list[str]]:
        """The argument of `tf.train.ClusterSpec`, and its JSON."""
        return {job: list(addresses) for job, addresses in self.jobs.items()}


def find(
    flags: ClusterFlags, environment: Mapping[str, str], *, evaluates: bool = False
) -> ClusterSpec | None:
    """The cluster that flags or `TF_CONFIG` describe; None for this process alone.

    Args:
      flags: of the cluster.
      environment: may contain `TF_CONFIG`.
      evaluates: whether nothing is trained; there is one graph then, as clients would
        share nothing.

    Raises:
      ValueError: the sentence says what is wrong.
    """
    setting = "job_name" if flags.job_name else "local_cluster"
    elastic = flags.elastic != "false"
    places = (flags.max_workers or 0) if elastic else 0
    cluster = from_tf_config(environment.get("TF_CONFIG", ""), flags, places=places)
    if cluster and (value := getattr(flags, setting)):
        raise wrong_setting(
            setting,
            value,
            "TF_CONFIG describes a cluster, too",
            f"unset TF_CONFIG, or leave out `{setting}`",
        )
    between = flags.replication == "between_graph" and not evaluates
    if flags.local_cluster:
        assert flags.local_tasks is not None
        cluster = local(flags.local_tasks, controller=not between)
    if flags.job_name:
        cluster = from_hosts(
            flags.job_name,
            flags.task_index,
            ps=flags.ps_hosts,
            workers=flags.worker_hosts,
            controller=flags.join or flags.controller_host,
            places=places,
        )
    if cluster is None:
        _check_unused(flags)
        return None
    token = cluster_token.read(flags.cluster_token_file)
    return dataclasses.replace(cluster, between=between, token=token, elastic=elastic)


def _check_unused(flags: ClusterFlags) -> None:
    """Refuses settings about other tasks if there are none."""
    for name, default in vars(type(flags)()).items():
        if name in _OF_OTHERS and getattr(flags, name) != default:
            raise wrong_setting(
                name,
                getattr(flags, name),
                "needs `job_name`, `local_cluster` or a TF_CONFIG with other tasks",
            )


def local(tasks: Mapping[str, int], *, controller: bool = True) -> ClusterSpec:
    """A cluster on this machine that is not started yet.

    Args:
      tasks: job -> number of tasks.
      controller: whether there is a controller in addition to the workers.
    """
    ports = iter(range(1, 2**16))
    jobs = {**tasks, "chief": 1} if controller else tasks
    addresses = {
        job: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
        for job, count in jobs.items()
    }
    me = Task("chief" if controller else "worker", 0)
    return ClusterSpec(_ordered(addresses), me, launches=True)


def from_hosts(
    job: str,
    index: int,
    *,
    ps: Sequence[str],
    workers: Sequence[str],
    controller: str | None,
    places: int = 0,
) -> ClusterSpec:
    """The cluster that the flags of tf_cnn_benchmarks describe.

    Args:
      job, index: of this task.
      ps, workers, controller: their addresses.
      places: as in `ClusterSpec`.

    Raises:
      ValueError: the sentence says what is wrong.
    """
    jobs = {"ps": ps, "worker": workers, "chief": [controller] if controller else []}
    return ClusterSpec(_ordered(jobs), Task(tf_config.JOBS[job], index), places=places)


def from_tf_config(
    text: str, flags: ClusterFlags | None = None, *, places: int = 0
) -> ClusterSpec | None:
    """The cluster that `TF_CONFIG` describes; None if there is none.

    Args:
      text: as `tf_config.read` has it.
      flags: what they say of tasks that `TF_CONFIG` leaves out.
      places: as in `ClusterSpec`.

    Raises:
      ValueError: it is malformed; the sentence says where.
    """
    flags = flags or ClusterFlags()
    try:
        config = tf_config.read(text)
        if config and config.sparse:
            return _from_part(config, flags, places)
        cluster = _from_whole(config) if config else None
    except SettingError:
        raise
    except ValueError as error:
        raise ValueError(f"TF_CONFIG: {error}; correct or unset it") from None
    for name in ("ps_hosts", "controller_host"):
        if (value := getattr(flags, name)) and not flags.job_name:
            words = "needs `job_name`, or a TF_CONFIG that names a part of the tasks"
            raise wrong_setting(name, value, words)
    return cluster


def _from_whole(config: tf_config.TfConfig) -> ClusterSpec | None:
    """The cluster of a `TF_CONFIG` that names all tasks, or none."""
    if not config.job:
        return None
    task = Task(config.job, config.index)
    if not config.hosts:
        return _without_hosts(task)
    ordered, evaluators = _ordered(config.hosts), config.hosts.get(EVALUATOR, [])
    count = len(config.hosts.get(task.job, ()))
    if evaluators and task.job == EVALUATOR and task.index >= count:
        raise ValueError(_no_such_task(task, count))
    if count > 1 and not config.has_index:  # all of them would be the first
        raise ValueError(
            f"the task has no 'index', and there are {count} tasks in job {task.job!r}"
        )
    if {job: len(hosts) for job, hosts in ordered.items()} == {"chief": 1}:
        if task == _CHIEF:
            return None  # a single process
    return ClusterSpec(ordered, task)


def _from_part(
    config: tf_config.TfConfig, flags: ClusterFlags, places: int
) -> ClusterSpec:
    """The cluster of a task of a TFJob with `enableDynamicWorker`.

    Its workers join; flags name the other tasks, where `TF_CONFIG` does not.
    """
    if flags.elastic == "false" and not flags.job_name:
        words = "TF_CONFIG names a part of the tasks, as workers come and go"
        raise wrong_setting("elastic", flags.elastic, words, "leave `elastic` out")
    chief = [flags.controller_host] if flags.controller_host else []
    hosts = {
        **config.hosts,
        "ps": flags.ps_hosts or config.hosts.get("ps", []),
        "chief": chief or config.hosts.get("chief", []),
    }
    if not hosts["chief"]:
        words = "is needed, as TF_CONFIG names a part of the tasks"
        raise wrong_setting("controller_host", None, words, "give it to every task")
    # The controller numbers the workers as they come.
    index = 0 if config.job == "worker" else config.index
    return ClusterSpec(_ordered(hosts), Task(config.job, index), places=places)


def _without_hosts(task: Task) -> ClusterSpec | None:
    """A spec without other tasks: of an evaluator, or None for a single process."""
    if task.job == EVALUATOR:
        return ClusterSpec({}, task)
    if task not in (Task("worker", 0), _CHIEF):
        raise ValueError(f"this task is {task}, but there is no 'cluster'")
    return None


def _no_such_task(task: Task, count: int) -> str:
    are = "is 1 task" if count == 1 else f"are {count} tasks"
    return f"this task is {task}, but there {are} in that job, counted from 0"


def _ordered(jobs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Jobs in a fixed order, so that all tasks have the same one."""
    order = ("ps", "worker", "chief")
    return {job: tuple(jobs[job]) for job in order if jobs.get(job)}


def address_fault(address: str) -> str:
    """Why an address is not host:port, in words that follow it, or ""."""
    # TensorFlow looks names up as they are, and reads no other digits; Python looks up
    # none with an empty label, or with one of more than 63 characters.
    name = r"[\w-]{1,63}(?:\.[\w-]{1,63})*\.?"
    pattern = rf"(\[[0-9A-Fa-f:.%\w]+\]|{name}):(\d{{1,5}})"
    match = re.fullmatch(pattern, address, re.ASCII)
    if match and 0 < int(match[2]) < 2**16:
        return ""
    return "is no host:port" + ("" if address.isascii() else " in ASCII letters")
