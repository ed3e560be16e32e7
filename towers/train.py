"""The main: flags -> plan -> one graph -> one session.

python -m towers.train --num_gpus=4
"""

import contextlib
import dataclasses
import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from flags import parse
from flags.config import Config
from flags.problem import Problem, problems_of
from towers import choices, graph, planning, run
from towers.callbacks.base import TrainingError
from towers.checkpoints import checkpoint, run_status, saving
from towers.cluster import local_cluster, messages, proxies, roles, server
from towers.cluster.controller import Controller
from towers.cluster.sessions import session_config, settle_process
from towers.compute import xla
from towers.data import inputs
from towers.errors import collected, explain, interrupts, output_paths
from towers.evaluation import evaluator, watch
from towers.layout import cluster_spec, placement
from towers.layout.gpus import Gpus
from towers.session import follower, tune
from towers.session.progress import Console
from towers.session.stop import StopOnSignal
from towers.variable_update.modes import VARIABLE_UPDATES

# Flag -> the table that its values are names in.
CHOICES = {
    **choices.CHOICES,
    "variable_update": {**VARIABLE_UPDATES, tune.AUTO: None},
}

# Role of a task -> what it changes in the settings, which are written for all tasks.
_READ_BY = {
    cluster_spec.EVALUATOR: roles.for_evaluator,
    cluster_spec.FOLLOWER: roles.for_follower,
}


class Order(NamedTuple):
    """What the command line and the environment ask for."""

    config: Config
    spec: cluster_spec.ClusterSpec | None
    plan: planning.Plan | None  # None for a task that only serves

    @property
    def cluster(self) -> cluster_spec.ClusterSpec:
        """`spec`, of a task of a cluster."""
        assert self.spec is not None
        return self.spec

    @property
    def planned(self) -> planning.Plan:
        """`plan`, of a task that trains or evaluates."""
        assert self.plan is not None
        return self.plan


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; returns the exit status."""
    order = None
    try:
        with interrupts.raised():
            order = _read(sys.argv if argv is None else argv)
            if order.config.output.check_flags:
                return _explained(order, lambda: _check(order))
            if order.spec:
                proxies.bypass_proxies(order.spec, os.environ)
            role = order.spec.role if order.spec else None
            return _ROLES[role](order, Console(sys.stdout))
    except (TrainingError, output_paths.OutputError, messages.ClusterError) as error:
        return collected.refuse([str(error)], status=1)
    except ValueError as error:  # from before the first step
        return collected.refuse_settings(error)
    except OSError as error:
        return collected.not_printed(error)
    except KeyboardInterrupt as error:  # where there was no step to finish
        return _stopped(interrupts.of(error), order)


def _stopped(error: interrupts.Interrupted, order: Order | None) -> int:
    """Prints what was saved before a signal; returns the exit status."""
    directory = order and order.config.output.train_dir
    latest = directory and checkpoint.latest(directory)
    if order is None or order.config.evaluation.eval:
        left = "nothing was begun; the same command begins it"
    elif latest:
        left = f"the last checkpoint is {latest}; the same command goes on from there"
    else:
        left = "nothing was saved; the same command begins anew"
    collected.say(f"Stopped by {error.name}: {left}.")
    return error.status


def _check(order: Order) -> int:
    """Prints that the command line is legal, if its graph can be built."""
    plan, role = order.plan, order.spec and order.spec.role
    if plan and not order.config.evaluation.eval and role != cluster_spec.EVALUATOR:
        if how := plan.options.pipeline:  # whose blocks might be timed
            how = dataclasses.replace(how, balance="params")
            options = dataclasses.replace(plan.options, pipeline=how)
            plan = dataclasses.replace(plan, options=options)
        evaluator.check_goal(plan, graph.build(**plan.parts))
    print("legal", flush=True)
    return 0


def _alone(order: Order, console: Console) -> int:
    """Trains or evaluates in this process."""
    if order.config.evaluation.eval:
        return _evaluate(order, console)
    return _train(
        order, lambda lock: run.train(_tuned(order, console), console, lock=lock)
    )


def _train(order: Order, act: Callable[..., int]) -> int:
    """Trains; writes the reason of a failure to `train_dir` for waiting evaluators."""
    directory = order.config.output.train_dir

    def noting_failure() -> int:
        try:
            return act(lock)
        except (ValueError, KeyboardInterrupt, saving.TakenError):
            raise  # refused before the first step, stopped, or another run's folder
        except BaseException as error:
            # A failure before the first checkpoint is refused, too.
            saved = directory and checkpoint.latest(directory)
            if saved or not _damage(order, error):
                run_status.leave(directory, str(error) or type(error).__name__)
            raise

    with output_paths.held("train_dir", directory) as lock:
        return _explained(order, noting_failure)


def _tuned(order: Order, console: Console) -> planning.Plan:
    """The plan of the run, in the fastest mode if that was asked for."""
    flags = order.config.variables
    if flags.variable_update != tune.AUTO:
        return order.planned
    choice = tune.choose(order.planned, console, again=flags.tune_again)
    return planning.make(tune.settled(order.config, choice), models.get)


def _control(order: Order, console: Console) -> int:
    """Trains or evaluates on the cluster whose controller this is."""
    if order.config.evaluation.eval:
        absent = _absence(order, console)
        act = functools.partial(watch.evaluate_checkpoints, absent=absent)
        return _explained(order, lambda: _on_cluster(order, console, act))
    act = functools.partial(_on_cluster, order, console)
    return _train(order, lambda lock: act(functools.partial(run.train, lock=lock)))


def _on_cluster(order: Order, console: Console, act: Callable[..., int]) -> int:
    with _sessions(order, console) as sessions:
        if order.cluster.between:  # followers ask, too
            server.announce(sessions.target, order.cluster)
        status = act(order.planned, console, sessions)
        with StopOnSignal():  # the run has ended; signals are ignored
            sessions.dismiss(status)
        return status


def _sessions(order: Order, console: Console) -> Controller:
    """The sessions of a client; starts its server."""
    where, flags = order.planned.placement, order.config.cluster
    session = session_config(where, order.config.devices)
    return Controller(
        order.cluster,
        placement.server_config(where, order.cluster.me, session),
        needs=(where.kind, where.per_task),
        stall_secs=flags.stall_secs,
        wait_secs=flags.wait_secs,
        console=console,
    )


def _follow(order: Order, console: Console) -> int:
    """Trains with the cluster's controller until it says that training has ended."""
    sessions, spec = _sessions(order, console), order.cluster
    statuses, report_dropout = server.announce(sessions.target, spec)
    console(f"{spec.me} follows {spec.controller} at {spec.address(spec.me)}.")

    def work() -> None:
        status = 1
        try:
            act = functools.partial(follower.follow, order.planned, sessions)
            status = _explained(order, lambda: act(report_dropout))
        except messages.ClusterError as error:
            collected.refuse([f"{spec.me}: {error}"], status=1)
        except ValueError as error:
            words = [f"{spec.me}: {text}" for text in collected.sentences(error)]
            collected.refuse(words, status=1)
        finally:
            statuses.put(status)

    threading.Thread(target=work, daemon=True).start()
    return server.await_dismissal(
        statuses,
        spec,
        stall_secs=order.config.cluster.stall_secs,
        wait_secs=order.config.cluster.wait_secs,
        console=console,
    )


def _serve(order: Order, console: Console) -> int:
    """Serves the cluster's controller until it says that training has ended."""
    devices, spec = order.config.devices, order.cluster
    where = placement.on_cluster(
        spec, devices.num_gpus, kind=devices.device, gpus=Gpus.of(devices)
    )
    if spec.me.job == "worker":
        _prepare(order, where, console)
    return server.serve(
        spec,
        placement.server_config(where, spec.me, session_config(where, devices)),
        stall_secs=order.config.cluster.stall_secs,
        wait_secs=order.config.cluster.wait_secs,
        console=console,
    )


def _prepare(order: Order, where: placement.Placement, console: Console) -> None:
    """Prepares the data set on this worker's disk if the worker reads a part of it."""
    settle_process(where, order.config.devices)
    try:
        planning.sources_of(order.config, models.get(order.config.model.model))
    except ValueError as error:  # it may be on the controller's disk only
        console(f"{order.cluster.me}: {'; '.join(collected.sentences(error))}")


def _evaluate(order: Order, console: Console) -> int:
    """Evaluates, in this process, the checkpoints that others write."""
    act = functools.partial(watch.evaluate_checkpoints, absent=_absence(order, console))
    return _explained(order, lambda: act(order.planned, console))


def _absence(order: Order, console: Console) -> Callable[[], str]:
    """Returns a function that says why there will be no more checkpoints, or ""."""
    spec, wait_secs = order.spec, order.config.cluster.wait_secs
    if spec and spec.role == cluster_spec.EVALUATOR and spec.jobs:
        return server.Absence(spec, wait_secs=wait_secs)
    directory = order.config.output.train_dir or ""
    seconds = wait_secs if spec else watch.DESERTED_SECONDS
    return watch.Desertion(directory, seconds=seconds, console=console)


def _launch(order: Order, console: Console) -> int:
    """Starts the cluster's tasks on this machine; this process becomes the launcher."""
    flags, where = order.config.cluster, order.planned.placement
    if not order.config.evaluation.eval:
        with output_paths.held("train_dir", order.config.output.train_dir):
            pass  # the controller would say so, too, when all tasks are started
    limits = ("max_restarts", "stall_secs", "wait_secs")
    launcher_flags = ("local_cluster", "allow_open_ports", "max_restarts", "device")
    controller = {} if order.cluster.between else {"controller": 1}
    local_cluster.become(
        {**(flags.local_tasks or {}), **controller},
        parse.arguments(order.config, without=launcher_flags),
        where=where,
        limits={name: getattr(flags, name) for name in limits},
        allow_open_ports=flags.allow_open_ports,
    )


_ROLES: dict[str | None, Callable[[Order, Console], int]] = {
    None: _alone,
    cluster_spec.CONTROLLER: _control,
    cluster_spec.SERVER: _serve,
    cluster_spec.FOLLOWER: _follow,
    cluster_spec.EVALUATOR: _evaluate,
    cluster_spec.LAUNCHER: _launch,
}


def _explained(order: Order, act: Callable[[], int]) -> int:
    """Calls `act`; prints a sentence for TensorFlow errors that the user can fix."""
    try:
        return act()
    except tf.errors.OpError as error:
        sentence = _damage(order, error) or explain.operation_error(error)
        if not sentence:
            raise
        return collected.refuse([sentence], status=1)


def _damage(order: Order, error: BaseException) -> str | None:
    """What is wrong with the data, if the error is about them."""
    splits = (order.planned.source, order.planned.eval_source)
    damage = inputs.explain(error, *(source for source in splits if source is not None))
    if damage and order.spec and order.planned.source.path:
        damage += "; each worker reads its share of it there, on its own disk"
    return damage


def _read(argv: Sequence[str]) -> Order:
    """What the command line asks for; one error has everything that is wrong."""
    config, problems = _parsed(argv)
    at_fault = {problem.setting for problem in problems}
    if config.devices.xla:  # before the plan opens this process's first session
        xla.allow_on_cpu()
    spec = plan = None
    cluster_ok = at_fault.isdisjoint(vars(config.cluster))  # all its flags are right
    try:
        if cluster_ok:
            evaluates = config.evaluation.eval
            spec = cluster_spec.find(config.cluster, os.environ, evaluates=evaluates)
    except ValueError as error:
        problems, cluster_ok = [*problems, *problems_of(error)], False
    role = spec.role if spec else None
    if role in _READ_BY:
        config = _READ_BY[role](config)
    if role == cluster_spec.EVALUATOR:
        if not (config.output.train_dir or config.cluster.job_name):
            problems += [Problem("", None, "TF_CONFIG: an evaluator needs --train_dir")]
    try:
        # Which flags are legal depends on the cluster.
        if cluster_ok and role != cluster_spec.SERVER:
            plan = _plan(config, spec)
    except collected.PlanError as error:
        # Not those that only arise from the default in place of a wrong value.
        problems += [p for p in error.problems if at_fault.isdisjoint(p.settings)]
    if problems:
        raise parse.UsageError(*problems)
    clients = (cluster_spec.CONTROLLER, cluster_spec.FOLLOWER)
    if spec and spec.between and role in clients:
        spec = dataclasses.replace(spec, flags=roles.agreed(config))
    return Order(config, spec, plan)


def _plan(config: Config, spec: cluster_spec.ClusterSpec | None) -> planning.Plan:
    """The plan of a run on the cluster, or beside it for its evaluator."""
    settings, watched = tune.settled(config), None
    if spec and spec.role == cluster_spec.EVALUATOR:
        spec, watched = None, spec
    with contextlib.suppress(ValueError):  # of which the plan says all
        settle_process(planning.placement_of(settings, spec), settings.devices)
    return planning.make(settings, models.get, spec, watched=watched)


def _parsed(argv: Sequence[str]) -> tuple[Config, list[Problem]]:
    """The settings, with defaults for those that are wrong, and the problems.

    Raises:
      parse.UsageError: the command line could not be read at all.
    """
    try:
        return parse.parse(argv, CHOICES), []
    except parse.UsageError as error:
        if not isinstance(error.config, Config):
            raise
        return error.config, [*error.problems]


def program() -> NoReturn:
    """Runs `main` and ends the process, even if other threads still wait."""
    status = main()
    collected.flush()
    if threading.active_count() == 1:
        sys.exit(status)
    # A thread that waits inside TensorFlow, as for a frozen task, cannot be ended.
    os._exit(status)


if __name__ == "__main__":
    start.take_interrupts()
    program()
