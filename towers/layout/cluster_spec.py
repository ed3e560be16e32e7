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

import collections
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flags.cluster import ClusterFlags
from flags.problem import wrong_setting
from towers.layout import cluster_token

# The roles of a process.
CONTROLLER, SERVER, EVALUATOR = "controller", "server", "evaluator"
FOLLOWER = "follower"  # a client, but not the controller
LAUNCHER = "launcher"  # of a local cluster

# Name of a job in TF_CONFIG or a flag -> name of the job here.
_JOBS = {
    "ps": "ps",
    "worker": "worker",
    "chief": "chief",
    "master": "chief",
    "controller": "chief",
    "evaluator": "evaluator",
}


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
    *("cluster_token_file", "elastic"),
)


@dataclasses.dataclass(frozen=True)
class ClusterSpec:
    """The tasks of a cluster, seen from one of them.

    Attributes:
      jobs: job -> host:port of each of its tasks, in the order `ps`, `worker`, `chief`.
      me: this process.
      launches: whether this process is not a task, but starts all of them.
      between: whether each worker is a client (between-graph replication).
      flags: of a client's command line, those that must be equal for all clients.
      token: the secret of the cluster; empty if it has none.
      elastic: whether workers come and go, so that servers know only themselves.
      absent: indices of the workers that take no part now.

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

    def __post_init__(self) -> None:
        if not self.jobs.get("worker") and self.me.job != EVALUATOR:
            raise ValueError("a cluster needs a worker")
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
                _check_address(Task(job, index), address)
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
        """The workers that take part."""
        every = range(len(self.jobs.get("worker", ())))
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
        """All tasks that take part but the controller."""
        ps = [Task("ps", i) for i in range(len(self.jobs.get("ps", ())))]
        return [task for task in (*ps, *self.workers) if task != self.controller]

    def address(self, task: Task) -> str:
        """Its host:port."""
        return self.jobs[task.job][task.index]

    def disagreement(self, task: Task, flags: Sequence[str]) -> str:
        """How a task's flags differ from this controller's, or ""."""
        if self.me != self.controller:
            return ""  # only the controller checks this, and ends all tasks
        expected = self.flags if task in self.clients else ()
        differ = set(expected) ^ set(flags)
        if not (expected and flags):  # one is a client, the other is not
            differ = {flag for flag in differ if flag.startswith("--replication=")}
        if not differ:
            return ""
        theirs, ours = (
            " ".join(flag for flag in some if flag in differ) or "the default"
            for some in (flags, expected)
        )
        return (
            f"was started with {theirs}, and {self.me} with {ours}; start all with the "
            "same flags"
        )

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
    cluster = from_tf_config(environment.get("TF_CONFIG", ""))
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
        )
    if cluster is None:
        _check_unused(flags)
        return None
    token = cluster_token.read(flags.cluster_token_file)
    elastic = flags.elastic != "false"
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
) -> ClusterSpec:
    """The cluster that the flags of tf_cnn_benchmarks describe.

    Args:
      job, index: of this task.
      ps, workers, controller: their addresses.

    Raises:
      ValueError: the sentence says what is wrong.
    """
    jobs = {"ps": ps, "worker": workers, "chief": [controller] if controller else []}
    return ClusterSpec(_ordered(jobs), Task(_JOBS[job], index))


def from_tf_config(text: str) -> ClusterSpec | None:
    """The cluster that `TF_CONFIG` describes; None if there is none.

    Args:
      text: JSON, `{"cluster": {job: [host:port]}, "task": {"type": job, "index": 0}}`.

    Raises:
      ValueError: it is malformed; the sentence says where.
    """
    try:
        return _from_tf_config(text)
    except ValueError as error:
        raise ValueError(f"TF_CONFIG: {error}; correct or unset it") from None


def _from_tf_config(text: str) -> ClusterSpec | None:
    config = _json(text)
    if config is None:
        return None
    hosts = _part(_part({"": config}, "", dict, {}), "cluster", dict, {})
    if "sparseCluster" in config:
        raise ValueError(
            "'sparseCluster' leaves out workers, and all tasks must know one another; "
            "give the TFJob enableDynamicWorker: false, which writes 'cluster'"
        )
    if not hosts:
        return _without_hosts(config)
    jobs: dict[str, list[str]] = {}
    for name in hosts:
        if name not in _JOBS:
            raise ValueError(f"job {name[:80]!r} is none of {', '.join(_JOBS)}")
        addresses = _part(hosts, name, list)
        if not all(isinstance(address, str) for address in addresses):
            raise ValueError(f"job {name!r} must be a list of host:port")
        if jobs.setdefault(_JOBS[name], addresses) is not addresses:
            raise ValueError(f"job {name!r} is there under two names")
    evaluators = jobs.pop(EVALUATOR, [])
    ordered, task = _ordered(jobs), _task(config)
    count = len({**ordered, EVALUATOR: evaluators}.get(task.job, ()))
    if evaluators and task.job == EVALUATOR and task.index >= count:
        raise ValueError(_no_such_task(task, count))
    if count > 1 and "index" not in config["task"]:  # all of them would be the first
        raise ValueError(
            f"the task has no 'index', and there are {count} tasks in job {task.job!r}"
        )
    if {job: len(hosts) for job, hosts in ordered.items()} == {"chief": 1}:
        if task == _CHIEF:
            return None  # a single process
    return ClusterSpec(ordered, task)


def _json(text: str) -> Any:
    """The parsed JSON; None if the text is empty."""
    twice: list[str] = []

    def entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = collections.Counter(name for name, _ in pairs)
        twice.extend(name for name, count in counts.items() if count > 1)
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=entries) if text.strip() else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON ({error})") from None
    if twice:  # JSON does not say which of them counts
        raise ValueError(f"{twice[0][:80]!r} is there more than once")
    return value


def _without_hosts(config: Mapping[str, Any]) -> ClusterSpec | None:
    """A spec without other tasks: of an evaluator, or None for a single process."""
    if not config.get("task"):
        return None
    task = _task(config)
    if task.job == EVALUATOR:
        return ClusterSpec({}, task)
    if task not in (Task("worker", 0), _CHIEF):
        raise ValueError(f"this task is {task}, but there is no 'cluster'")
    return None


def _task(config: Mapping[str, Any]) -> Task:
    """The task of this process in `TF_CONFIG`."""
    task = _part(config, "task", dict)
    kind = _part(task, "type", str)
    if kind not in _JOBS:
        raise ValueError(f"task type {kind[:80]!r} is none of {', '.join(_JOBS)}")
    index = task.get("index", 0)
    # Some writers put the index into quotes.
    if isinstance(index, str) and re.fullmatch(r"[0-9]{1,6}", index):
        index = int(index)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ValueError(f"task index {repr(index)[:80]} is no whole number")
    return Task(_JOBS[kind], index)


def _no_such_task(task: Task, count: int) -> str:
    are = "is 1 task" if count == 1 else f"are {count} tasks"
    return f"this task is {task}, but there {are} in that job, counted from 0"


def _part(whole: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """An entry of a JSON object, of the type that it must have."""
    entry = whole.get(name, default)
    if not isinstance(entry, kind):
        words_of: dict[type, str] = {dict: "an object", list: "a list", str: "text"}
        words = words_of[kind]
        raise ValueError(f"{name!r} must be {words}" if name else f"must be {words}")
    return entry


def _ordered(jobs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Jobs in a fixed order, so that all tasks have the same one."""
    order = ("ps", "worker", "chief")
    return {job: tuple(jobs[job]) for job in order if jobs.get(job)}


def _check_address(task: Task, address: str) -> None:
    # TensorFlow looks names up as they are, and reads no other digits; Python looks up
    # none with an empty label, or with one of more than 63 characters.
    name = r"[\w-]{1,63}(?:\.[\w-]{1,63})*\.?"
    pattern = rf"(\[[0-9A-Fa-f:.%\w]+\]|{name}):(\d{{1,5}})"
    match = re.fullmatch(pattern, address, re.ASCII)
    if not match or not 0 < int(match[2]) < 2**16:
        letters = "" if address.isascii() else " in ASCII letters"
        raise ValueError(
            f"{task} has the address {address[:80]!r}, which is no host:port{letters}"
        )
