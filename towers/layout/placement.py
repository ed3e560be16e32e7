"""Placement of towers and variables on devices; only this module makes device names.

A placement is plain data: a device for every tower, the host that feeds each tower, and
the devices of the variables.  The same graph runs on one host's GPUs, on logical CPU
devices, or on the tasks of a cluster; only these names differ.
"""

import collections
import dataclasses

import tensorflow as tf

from flags.problem import wrong_setting
from towers.layout.cluster_spec import ClusterSpec, Task
from towers.layout.gpus import ALL, Gpus, plural
from towers.layout.processor import cores


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices of a train graph.

    Attributes:
      kind: `cpu` or `gpu`, on which the towers run.
      towers: the device of each tower; with stages, of its first stage.
      hosts: the CPU device of each tower's host, which feeds it; towers of one host are
        consecutive.
      parameters: the devices that have the variables and average gradients.
      master: the CPU device of the client's process, for counters and files.
      notice: one line for the user about the choice of devices, or "".
      stages: `[towers][stages]` devices; by default each tower has one stage.
      client: index of this client, in between-graph replication.
      clients: number of clients that train together, each with its own graph.
      counters: the device of the counters that clients share; the master's if empty.
      at_a_time: how many towers compute at the same time; 0 for all of them.
      gpu_split: logical GPUs that each GPU is split into.
      gpu_memory_fraction: share of each GPU's memory that sessions use; 0 for all of
        it.  The first session of a process sets it.
    """

    kind: str
    towers: tuple[str, ...]
    hosts: tuple[str, ...]
    parameters: tuple[str, ...]
    master: str = "/device:CPU:0"
    notice: str = ""
    stages: tuple[tuple[str, ...], ...] = ()
    client: int = 0
    clients: int = 1
    counters: str = ""
    at_a_time: int = 0
    gpu_split: int = 1
    gpu_memory_fraction: float = 0.0

    def __post_init__(self) -> None:
        if not self.counters:
            object.__setattr__(self, "counters", self.master)
        if not self.stages:
            object.__setattr__(self, "stages", tuple((name,) for name in self.towers))

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices of all stages of all towers, in tower order."""
        return tuple(device for stages in self.stages for device in stages)

    @property
    def device_kind(self) -> str:
        """`kind`, or `logical gpu` if towers share GPUs."""
        return f"logical {self.kind}" if self.gpu_split > 1 else self.kind

    @property
    def is_cluster(self) -> bool:
        """Whether the devices are those of tasks, not of this process alone."""
        return bool(task_of(self.master))

    @property
    def per_task(self) -> int:
        """Largest number of devices of a task."""
        return max(collections.Counter(map(task_of, self.devices)).values())

    @property
    def num_towers(self) -> int:
        """Number of towers, of all clients together."""
        return len(self.towers) * self.clients

    @property
    def homes(self) -> list[tuple[str, ...]]:
        """[stages], the devices that may hold a stage's variables.

        These are the parameter devices that are devices of the stage in some tower, or
        all parameter devices if there are none.
        """
        stage_devices = [set(devices) for devices in zip(*self.stages)]
        return [
            tuple(d for d in self.parameters if d in devices) or self.parameters
            for devices in stage_devices
        ]

    @property
    def shard_homes(self) -> list[tuple[str, ...]]:
        """[shards], the devices that may hold a shard's parts: one in each tower.

        Empty if towers have one device each, or the variables are on ps tasks.
        """
        if len(self.devices) == len(self.towers) or self.is_cluster:
            return []
        return [tuple(devices) for devices in zip(*self.stages)]

    @property
    def replica_homes(self) -> list[list[tuple[str]]]:
        """`[towers][stages or shards]`: the device of each part of a replica."""
        return [[(device,) for device in devices] for devices in self.stages]

    @property
    def groups(self) -> list[tuple[str, list[str]]]:
        """(host, its towers' devices), in tower order: one input pipeline each."""
        groups: list[tuple[str, list[str]]] = []
        for host, tower in zip(self.hosts, self.towers):
            if not groups or groups[-1][0] != host:
                groups.append((host, []))
            groups[-1][1].append(tower)
        return groups


def device(kind: str, index: int, of: Task | None = None) -> str:
    """The name of a device, such as `/device:GPU:1`, of a task or of this process."""
    return f"{task(of) if of else ''}/device:{kind}:{index}"


def task(of: Task) -> str:
    """`/job:worker/task:1`, the task as device filters of sessions name it."""
    return f"/job:{of.job}/task:{of.index}"


def task_of(name: str) -> str:
    """The job and task of a device, or "" for a device of this process."""
    return name.partition("/device:")[0]


def is_called(device: str, full: str) -> bool:
    """Whether a device of a placement has this full name in a session.

    Args:
      device: `/device:GPU:1`, or `/job:worker/task:0/device:GPU:1`.
      full: `/job:worker/replica:0/task:0/device:GPU:1`; any job, if `device` has none.
    """
    return full.replace("/replica:0", "").endswith(device)


def host_of(name: str) -> str:
    """The CPU device of a device's host."""
    return f"{task_of(name)}{device('CPU', 0)}"


def gpus_of(host: str, placement: Placement) -> int:
    """How many GPUs a host, given by its CPU device, has."""
    split = placement.gpu_split
    gpus = [name for name in placement.devices if host_of(name) == host]
    return len({int(name.rpartition(":")[2]) // split for name in gpus})


def local(
    num_gpus: int,
    *,
    kind: str = "auto",
    parameters: str = "cpu",
    gpus: Gpus = ALL,
    num_stages: int = 1,
    num_shards: int = 1,
) -> Placement:
    """Towers on this machine's GPUs, or on the same number of logical CPU devices.

    Args:
      num_gpus: number of devices.
      kind: `gpu`, `cpu`, or `auto`: GPUs if the machine has any.
      parameters: `cpu` puts variables on the host, `gpu` distributes them over the
        towers' GPUs.
      gpus: which GPUs, and whether they are split.
      num_stages: devices of each tower, with a part of the model each.
      num_shards: devices of each tower, with a part of some layers each.

    Raises:
      ValueError: there are not enough GPUs; the sentence says what to write.
    """
    if num_gpus < 1 or kind not in ("auto", "cpu", "gpu"):
        raise ValueError(
            f"local({num_gpus}, kind={kind!r}): write 1 or more, and auto, cpu or gpu"
        )
    visible = len(tf.config.list_physical_devices("GPU")) if kind != "cpu" else 0
    if kind == "cpu" or (kind == "auto" and not visible):
        where = _logical_cpus(num_gpus, parameters)
        if kind == "auto":
            notice = _notice(num_gpus, num_stages, num_shards)
            where = dataclasses.replace(where, notice=notice)
        return in_stages(where, max(num_stages, num_shards))
    indices = gpus.first(num_gpus)
    gpus.check(num_gpus, visible)
    towers = tuple(device("GPU", index) for index in indices)
    where = Placement(
        kind="gpu",
        towers=towers,
        hosts=(device("CPU", 0),) * num_gpus,
        parameters=towers if parameters == "gpu" else (device("CPU", 0),),
        notice=gpus.notice(num_gpus),
        gpu_split=gpus.split,
        gpu_memory_fraction=gpus.memory_fraction,
    )
    return in_stages(where, max(num_stages, num_shards))


def on_cluster(
    spec: ClusterSpec,
    num_gpus: int,
    *,
    kind: str = "auto",
    gpus: Gpus = ALL,
    num_stages: int = 1,
    num_shards: int = 1,
) -> Placement:
    """A tower on every device of every worker, variables over the ps tasks.

    Variables are on the controller if there is no ps.  The stages of a tower are on
    consecutive devices, of one worker if it has enough, else of several.  In
    between-graph replication the towers are those of this client.

    Args:
      spec: the tasks.
      num_gpus: towers of each worker.
      kind: `gpu`, `cpu`, or `auto`: what this machine has.
      gpus: which GPUs of each worker, and whether they are split.
      num_stages: devices of each tower, with a part of the model each.
      num_shards: devices of each tower, with a part of some layers each; divides
        `num_gpus`.
    """
    each, kind = max(num_stages, num_shards), kind_of(kind)
    indices = gpus.first(num_gpus)
    ps = [Task("ps", p) for p in range(len(spec.jobs.get("ps", ())))]
    where = Placement(
        kind=kind,
        towers=tuple(
            device(kind.upper(), i, of) for of in spec.workers for i in indices
        ),
        hosts=tuple(device("CPU", 0, of) for of in spec.workers for _ in indices),
        parameters=tuple(device("CPU", 0, of) for of in ps or [spec.controller]),
        master=device("CPU", 0, spec.controller),
        notice=gpus.notice(len(indices) * len(spec.workers)) if kind == "gpu" else "",
        gpu_split=gpus.split if kind == "gpu" else 1,
        gpu_memory_fraction=gpus.memory_fraction,
    )
    if not spec.between or spec.me not in spec.clients:
        return in_stages(where, each)
    placement = dataclasses.replace(
        where,
        towers=tuple(device(kind.upper(), i, spec.me) for i in indices),
        hosts=(device("CPU", 0, spec.me),) * len(indices),
        stages=(),
        master=device("CPU", 0, spec.me),
        counters=where.parameters[0],
        client=spec.clients.index(spec.me),
        clients=len(spec.clients),
    )
    return in_stages(placement, each)


def kind_of(asked: str) -> str:
    """`cpu` or `gpu`; `auto` is `gpu` if this machine has one."""
    if asked != "auto":
        return asked
    return "gpu" if tf.config.list_physical_devices("GPU") else "cpu"


def in_stages(where: Placement, num_stages: int) -> Placement:
    """Makes towers of several stages: consecutive devices become one tower's stages.

    Args:
      where: with one device per tower.
      num_stages: of each tower; divides the number of devices.
    """
    devices = where.towers
    assert len(devices) % num_stages == 0, (devices, num_stages)
    firsts = range(0, len(devices), num_stages)
    return dataclasses.replace(
        where,
        towers=devices[::num_stages],
        hosts=where.hosts[::num_stages],
        stages=tuple(devices[i : i + num_stages] for i in firsts),
    )


def _notice(num_devices: int, num_stages: int, num_shards: int = 1) -> str:
    num_towers = num_devices // max(num_stages, num_shards)
    staged = f" of {num_stages} stages" if num_stages > 1 else ""
    staged = f" of {num_shards} shards" if num_shards > 1 else staged
    run = f"{plural(num_towers, 'tower')}{staged} run" + "s" * (num_towers == 1)
    devices = plural(num_devices, "logical CPU device")
    return f"No GPU is visible: {run} on {devices}."


def _logical_cpus(num_towers: int, parameters: str) -> Placement:
    if parameters == "gpu":
        raise wrong_setting(
            "local_parameter_device",
            "gpu",
            "the towers run on CPU devices",
            "write `local_parameter_device=cpu`",
        )
    return Placement(
        kind="cpu",
        towers=tuple(device("CPU", index) for index in range(num_towers)),
        hosts=(device("CPU", 0),) * num_towers,
        parameters=(device("CPU", 0),),
        at_a_time=cores(),  # more would only take more memory
    )


def server_config(
    placement: Placement, of: Task, config: tf.compat.v1.ConfigProto
) -> tf.compat.v1.ConfigProto:
    """The configuration of a task's server: only workers get GPUs or several CPUs.

    Args:
      placement: on the cluster.
      of: the task.
      config: of sessions.
    """
    task_config = tf.compat.v1.ConfigProto()
    task_config.CopyFrom(config)
    if task(of) not in map(task_of, placement.devices):
        task_config.device_count.update({"CPU": 1, "GPU": 0})
    del task_config.device_filters[:]
    return task_config


def threads_in_operation(placement: Placement) -> int:
    """Threads for one operation on a CPU, 0 for one per core.

    If a process has a logical CPU device for every core, one thread per operation is
    faster, as each core runs another tower: on 2 cores resnet20's step with 4 towers x
    32 images was 1.11 times as fast, resnet50's with 4 x 4 images 1.05 times.  With
    fewer devices, several cores must work on one operation.
    """
    if placement.kind != "cpu":
        return 0
    tasks = collections.Counter(map(task_of, placement.devices))
    return 1 if max(tasks.values()) >= cores() > 1 else 0


def session_config(
    placement: Placement,
    *,
    intra_threads: int = 0,
    inter_threads: int = 0,
    allow_growth: bool | None = None,
    auto_jit: bool = False,
) -> tf.compat.v1.ConfigProto:
    """The session's options: hard placement, and the logical devices of each task.

    TensorFlow's graph optimizers are off: on these graphs they take seconds of the
    first step (with 32 towers 14 s instead of 3 s), and operations lose their names in
    traces.  They fuse operations with the ReLU after them, which then makes 0 of NaN,
    so that the loss does not show it.  Most steps are no faster with them; that of
    resnet20 with one tower was 1.04 to 1.06 times as fast on a Xeon.

    Args:
      placement: of the graph to run.
      intra_threads: threads inside an operation, 0 for `threads_in_operation`.
      inter_threads: threads over operations, 0 for one per core.
      allow_growth: whether GPU memory is allocated as needed; None: TensorFlow's
        default.
      auto_jit: whether XLA compiles clusters of the graph's operations; on CPUs only
        after `xla.allow_on_cpu`.
    """
    config = tf.compat.v1.ConfigProto(
        allow_soft_placement=False,
        intra_op_parallelism_threads=intra_threads or threads_in_operation(placement),
        inter_op_parallelism_threads=inter_threads,
    )
    if placement.kind == "cpu":
        config.device_count["CPU"] = placement.per_task
        config.device_count["GPU"] = 0
    if allow_growth is not None:
        config.gpu_options.allow_growth = allow_growth
    fraction = placement.gpu_memory_fraction
    config.gpu_options.per_process_gpu_memory_fraction = fraction
    if placement.gpu_split > 1:
        split = placement.gpu_split
        config.gpu_options.experimental.num_virtual_devices_per_gpu = split
    if placement.clients > 1:  # so that the loss of another client does not end it
        tasks = map(task_of, (placement.master, *placement.parameters))
        config.device_filters.extend(dict.fromkeys(tasks))
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    options = config.graph_options.optimizer_options
    options.opt_level = options.L0
    options.global_jit_level = options.ON_1 if auto_jit else options.OFF
    return config
