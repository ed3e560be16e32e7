"""The variable `TF_CONFIG`, as Kubernetes' TFJob writes it.

    {"cluster": {"ps": ["p:2222"], "worker": ["w0:2222", "w1:2222"],
                 "chief": ["c:2222"]},
     "task": {"type": "worker", "index": 1}}

A TFJob with `enableDynamicWorker` writes a part of it: each worker knows itself and the
ps tasks, `{"ps": ["p:2222"], "worker": {"1": "w1:2222"}}`; a ps task knows itself; the
chief knows nobody, `{"ps": [], "worker": {}}`.  Operators before 1.7 call the cluster
`sparseCluster` (Kubeflow's training-operator, pkg/controller.v1/tensorflow/
tensorflow.go).  Others write all jobs so, and leave out fewer (DLRover's TFJobs).
"""

import collections
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

EVALUATOR = "evaluator"

# Name of a job in TF_CONFIG or a flag -> name of the job here.
JOBS = {
    "ps": "ps",
    "worker": "worker",
    "chief": "chief",
    "master": "chief",
    "controller": "chief",
    "evaluator": EVALUATOR,
}
_SPARSE = "sparseCluster"


class TfConfig(NamedTuple):
    """What `TF_CONFIG` says.

    Attributes:
      hosts: job -> host:port of its tasks, of those that are named.
      job, index: of this task; the job is "" if no task is named.
      has_index: whether it is said, and not 0 because there is none.
      sparse: whether it describes a part of the cluster; then of the workers a worker
        knows itself alone.
    """

    hosts: Mapping[str, list[str]]
    job: str
    index: int  # type: ignore[assignment]
    has_index: bool
    sparse: bool


def read(text: str) -> TfConfig | None:
    """Reads the variable; None if it is empty.

    Args:
      text: JSON.

    Raises:
      ValueError: it is malformed; the sentence says where.
    """
    whole = _json(text)
    if whole is None:
        return None
    config = _part({"": whole}, "", dict)
    if _SPARSE in config and "cluster" in config:
        raise ValueError(f"'cluster' and {_SPARSE!r} are both there")
    of_jobs = _part(config, _SPARSE if _SPARSE in config else "cluster", dict, {})
    sparse = _is_sparse(config)
    named: dict[str, dict[int, str]] = {}
    for name in of_jobs:
        if name not in JOBS:
            raise ValueError(f"job {name[:80]!r} is none of {', '.join(JOBS)}")
        addresses = _addresses(of_jobs, name)
        if named.setdefault(JOBS[name], addresses) is not addresses:
            raise ValueError(f"job {name!r} is there under two names")
    job, index, has_index = "", 0, False
    if of_jobs or sparse or config.get("task"):
        job, index, has_index = _task(config)
    if sparse and job == "worker":
        if index not in named.get("worker", ()):
            raise ValueError(f"'worker' does not have this task, worker {index}")
        named["worker"] = {index: named["worker"][index]}
    hosts = {name: [them[k] for k in sorted(them)] for name, them in named.items()}
    return TfConfig(hosts, job, index, has_index, sparse)


def is_sparse(text: str) -> bool:
    """Whether a variable describes a part of the cluster, perhaps with mistakes."""
    try:
        config = _json(text)
    except ValueError:
        return False
    return isinstance(config, dict) and _is_sparse(config)


def _is_sparse(config: Mapping[str, Any]) -> bool:
    jobs = config.get("cluster")
    values = jobs.values() if isinstance(jobs, dict) else ()
    return _SPARSE in config or any(isinstance(value, dict) for value in values)


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


def _addresses(jobs: Mapping[str, Any], name: str) -> dict[int, str]:
    """Index -> host:port of a job's tasks, from a list or an object."""
    entry, kind = jobs[name], "an object"
    if not isinstance(entry, dict):
        kind, listed = "a list", _part(jobs, name, list)
        entry = {str(k): address for k, address in enumerate(listed)}
    if not all(isinstance(address, str) for address in entry.values()):
        raise ValueError(f"job {name!r} must be {kind} of host:port")
    return {_index(name, key): address for key, address in entry.items()}


def _index(name: str, key: str) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,5}", key):
        raise ValueError(f"job {name!r} has {key[:80]!r} in the place of a number")
    return int(key)


def _task(config: Mapping[str, Any]) -> tuple[str, int, bool]:
    """(job, index, whether the index is said) of this process."""
    task = _part(config, "task", dict)
    kind = _part(task, "type", str)
    if kind not in JOBS:
        raise ValueError(f"task type {kind[:80]!r} is none of {', '.join(JOBS)}")
    index = task.get("index", 0)
    # Some writers put the index into quotes.
    if isinstance(index, str) and re.fullmatch(r"[0-9]{1,6}", index):
        index = int(index)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ValueError(f"task index {repr(index)[:80]} is no whole number")
    return JOBS[kind], index, "index" in task


def _part(whole: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """An entry of a JSON object, of the type that it must have."""
    entry = whole.get(name, default)
    if not isinstance(entry, kind):
        words_of: dict[type, str] = {dict: "an object", list: "a list", str: "text"}
        words = words_of[kind]
        raise ValueError(f"{name!r} must be {words}" if name else f"must be {words}")
    return entry
