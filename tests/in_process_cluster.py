"""The tasks of a cluster in one process, for tests that compare and count.

TensorFlow's servers listen on every interface, so such a test runs in a process of its
own, in a private network.
"""

import atexit
import collections
import contextlib
import dataclasses
import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import tensorflow as tf

from tests.processes import programs
from tests.processes.programs import ROOT
from towers.cluster import local_cluster
from towers.layout import cluster_spec, placement

v1 = tf.compat.v1


_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}

# Runs a cluster to its end; prints `Ends` of `manual_tasks`.
_ALONE = """
import json, sys
from tests.processes import manual_tasks

flags, how = json.loads(sys.argv[1])
cluster = manual_tasks.Tasks(*flags, **how)
try:
    found = cluster.end()
finally:
    cluster.kill()
print(json.dumps(found))
"""


class _Server(programs.OutputLines):
    """`program_server`, until this process ends."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.program_server"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **_QUIET},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.kill)
        super().__init__(self._process.stdout)

    def run(self, program: str, arguments: list[str], data_dir: str | None) -> str:
        """What a program prints; arguments as `manual_tasks` has them."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **_QUIET}
        environment |= {"TFDS_DATA_DIR": data_dir} if data_dir else {}
        order = [program, arguments, environment]
        self._process.stdin.write(f"{json.dumps(order)}\n")
        self._process.stdin.flush()
        succeeded, printed = json.loads(self.line("", 2 * programs.PATIENCE))
        assert succeeded, printed
        return printed

    def kill(self) -> None:
        """Ends the whole group: a task that a program started may be frozen."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


_server = functools.cache(_Server)


def manual_tasks(program: str, *order: Any, data_dir: str | None = None) -> Any:
    """Runs a program that uses the module `manual_tasks`, in a private network.

    Such programs run one after the other in one process (`program_server`).

    Args:
      program: Python code whose last line of output is JSON.
      *order: given to it as one argument, a JSON list.
      data_dir: where TFDS keeps its data sets; its own default when None.

    Returns:
      The value of that JSON.

    Raises:
      SkipTest: the system has no private networks.
      AssertionError: the program fails; the message is its traceback.
    """
    programs.need_private_networks()
    try:
        printed = _server().run(program, [json.dumps(order)], data_dir)
    except BaseException:
        _server().kill()  # and whatever the program has left there
        _server.cache_clear()
        raise
    return json.loads(printed.splitlines()[-1])


# Runs a program in a process of its own; prints its status and its lines.
_FORKED = """
import json, sys
from tests.processes import manual_tasks, programs

program, arguments = json.loads(sys.argv[1])
task = manual_tasks.Task(arguments, program=program)
try:
    print(json.dumps([task.end(programs.PATIENCE), task.lines]))
finally:
    task.process.kill()
"""


def found_inside(program: str, *arguments: str) -> Any:
    """Runs a program in a process of its own, in a private network.

    Args:
      program: Python code whose last line of output is JSON, as `tell` prints it.
      *arguments: of the program.

    Returns:
      The value of that JSON.

    Raises:
      SkipTest: the system has no private networks.
      AssertionError: the program fails or takes longer than `programs.PATIENCE`; the
        message is what it printed.
    """
    status, lines = manual_tasks(_FORKED, program, arguments)
    assert status == 0, "\n".join(lines)
    return json.loads(lines[-1])


def ended(*flags: str, data_dir: str, **how: Any) -> dict[str, list[str]]:
    """Runs a cluster until all of its tasks have ended with status 0.

    Args:
      *flags: of every task's command line.
      data_dir: as `manual_tasks` has it.
      **how: the other arguments of `manual_tasks.Tasks`.

    Returns:
      "job index" -> the lines that the task printed.
    """
    ends = all_ends(*flags, data_dir=data_dir, **how)
    for name, (status, lines) in ends.items():
        assert status == 0, (name, status, lines)
    return {name: lines for name, (_, lines) in ends.items()}


def all_ends(
    *flags: str, data_dir: str, **how: Any
) -> dict[str, tuple[int, list[str]]]:
    """As `ended`, whatever the statuses: each task's status and its lines."""
    return manual_tasks(_ALONE, flags, how, data_dir=data_dir)


def tell(value: Any) -> NoReturn:
    """Prints a value as JSON and ends the process, which servers keep from ending."""
    print(json.dumps(value), flush=True)
    os._exit(0)


def serve(
    *, ps: int, devices: int, auto_jit: bool = False
) -> tuple[cluster_spec.ClusterSpec, str]:
    """Starts ps tasks, two workers and a controller.

    Args:
      ps: how many.
      devices: of each worker, logical CPUs.
      auto_jit: as `placement.session_config` has it.

    Returns:
      the tasks, and the target of the controller's sessions.
    """
    hosts = local_cluster.free_addresses(ps + 3)
    spec = cluster_spec.from_hosts(
        "chief", 0, ps=hosts[:ps], workers=hosts[ps : ps + 2], controller=hosts[-1]
    )
    return spec, _start(spec, devices, auto_jit=auto_jit)[spec.me]


def serve_clients(
    *, ps: int, devices: int, workers: int = 2
) -> list[tuple[cluster_spec.ClusterSpec, str]]:
    """Starts ps tasks and workers that are clients.

    Args:
      ps, devices: as `serve` has them.
      workers: how many.

    Returns:
      of each client the tasks as it sees them, and the target of its sessions; the
      chief's first.
    """
    hosts = local_cluster.free_addresses(ps + workers)
    spec = cluster_spec.from_hosts(
        "worker", 0, ps=hosts[:ps], workers=hosts[ps:], controller=None
    )
    targets = _start(spec, devices)
    return [
        (dataclasses.replace(spec, me=client, between=True), targets[client])
        for client in (spec.me, *spec.servers)
        if client.job == "worker"
    ]


def _start(
    spec: cluster_spec.ClusterSpec, devices: int, *, auto_jit: bool = False
) -> dict[cluster_spec.Task, str]:
    """Starts the tasks; returns the target of each."""
    where = placement.on_cluster(spec, devices, kind="cpu")
    config = placement.session_config(where, auto_jit=auto_jit)
    return {
        task: tf.distribute.Server(
            spec.as_dict(),
            job_name=task.job,
            task_index=task.index,
            config=placement.server_config(where, task, config),
        ).target
        for task in [*spec.servers, spec.me]
    }


def crossed(session: v1.Session, step: tf.Operation) -> list[tuple[str, str, int]]:
    """(from, to, bytes) of a step, for each pair of tasks that exchange some."""
    full = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    most: dict[tuple[str, str], int] = {}
    for _ in range(6):  # the record may miss transfers at the end of the step
        metadata = v1.RunMetadata()
        session.run(step, options=full, run_metadata=metadata)
        for ends, count in _transfers(metadata).items():
            most[ends] = max(count, most.get(ends, 0))
    return [(*ends, count) for ends, count in most.items()]


def _transfers(metadata: v1.RunMetadata) -> dict[tuple[str, str], int]:
    """Bytes sent between tasks in a traced session call.

    TensorFlow may miss a transfer that ends as the call does.

    Args:
      metadata: of a call with `RunOptions.FULL_TRACE`.

    Returns:
      (from, to) -> bytes of tensors, the tasks as `placement.task` has them.
    """
    sent_bytes: dict[tuple[str, str], int] = collections.Counter()
    pattern = (
        r" from (/job:\w+)/replica:0(/task:\d+)\S* to (/job:\w+)/replica:0(/task:\d+)"
    )
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            # TensorFlow notes a transfer under the device that receives it.
            if node.node_name != "RecvTensor":
                continue
            ends = re.search(pattern, node.timeline_label)
            if ends:
                sent_bytes[ends[1] + ends[2], ends[3] + ends[4]] += sum(
                    output.tensor_description.allocation_description.requested_bytes
                    for output in node.output
                )
    return dict(sent_bytes)


def between(crossed: Sequence[tuple[str, str, int]], source: str, other: str) -> int:
    """Bytes from tasks whose name contains `source` to those with `other`.

    Args:
      crossed: as the function `crossed` returns it.
      source, other: parts of the names.
    """
    return sum(n for begin, end, n in crossed if source in begin and other in end)
