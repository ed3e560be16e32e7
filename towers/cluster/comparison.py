"""Whether a task that answers is a task of this cluster, by what it says of itself."""

import json
from collections.abc import Sequence

import tensorflow as tf

from towers.cluster import software
from towers.cluster.messages import TaskInfo
from towers.layout.cluster_spec import ClusterSpec, Task


def differences(spec: ClusterSpec, task: Task, hello: TaskInfo) -> list[str]:
    """Why a task that answers is not a task of this cluster, in words."""
    name = f"{task} at {spec.address(task)}"
    unequal = list(software.differences(hello.software, must_agree=True))
    if hello.tensorflow != tf.__version__:
        versions = hello.tensorflow, tf.__version__
        unequal.append(software.VersionDifference("TensorFlow", *versions))
    reasons = [
        f"{name} runs {each.name} {each.theirs} and {spec.me} runs {each.ours}; "
        "install the same"
        for each in unequal
    ]
    if spec.elastic:
        if leader(hello) != spec.address(spec.controller):
            reasons.append(
                f"{name} was started for the controller at {leader(hello)}, and not "
                f"for that at {spec.address(spec.controller)}"
            )
    elif hello.cluster != spec.as_dict():
        reasons.append(
            f"{name} was started with the cluster {json.dumps(hello.cluster)}, "
            f"and {spec.me} with {json.dumps(spec.as_dict())}; start all with the same "
            "hosts"
        )
    if disagree := disagreement(spec, task, hello.flags):
        reasons.append(f"{name} {disagree}")
    elif None not in (here := (hello.num_examples, spec.num_examples)):
        if here[0] != here[1]:
            reasons.append(
                f"{name} has {here[0]} examples of the data set on its disk, and "
                f"{spec.me} has {here[1]}; give it the same files"
            )
    return reasons


def remarks(spec: ClusterSpec, task: Task, hello: TaskInfo) -> list[str]:
    """Lines about a task whose software differs, but not so that it matters here."""
    return [
        f"{task} at {spec.address(task)} runs {each.name} {each.theirs}, and {spec.me} "
        f"runs {each.ours}."
        for each in software.differences(hello.software, must_agree=False)
    ]


def disagreement(spec: ClusterSpec, task: Task, flags: Sequence[str]) -> str:
    """How a task's flags differ from this controller's, or ""."""
    if spec.me != spec.controller:
        return ""  # only the controller checks this, and ends all tasks
    trains = spec.elastic and task.job == "worker"
    expected = spec.flags if trains or task in spec.clients else ()
    differ = set(expected) ^ set(flags)
    if not (trains or (expected and flags)):  # one is a client, the other is not
        differ = {flag for flag in differ if flag.startswith("--replication=")}
    if not differ:
        return ""
    theirs, ours = (
        " ".join(flag for flag in some if flag in differ) or "the default"
        for some in (flags, expected)
    )
    return (
        f"was started with {theirs}, and {spec.me} with {ours}; start all with the "
        "same flags"
    )


def leader(hello: TaskInfo) -> str:
    """The address of the controller that a task was started for."""
    jobs = hello.cluster
    return (jobs.get("chief") or jobs["worker"])[0]


def lacking(hello: TaskInfo, kind: str, count: int) -> str:
    """Which devices a worker lacks, or ""."""
    has = hello.devices.get(kind.upper(), 0)
    if has >= count:
        return ""
    return (
        f"has {has} {kind.upper()} devices, and needs {count}; give every task the "
        "same --num_gpus, and --device=gpu or --device=cpu"
    )
