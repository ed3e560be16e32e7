"""The main: flags -> plan -> one graph -> one session.

python -m towers.train --num_gpus=4
"""

import dataclasses
import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from flags import parse
from flags.devices import DeviceFlags
from towers import graph, membership, planning, run
from towers.callbacks.base import TrainingError
from towers.checkpoints import checkpoint, run_status, saving, warm_start
from towers.cluster import (
    local_cluster,
    messages,
    proxies,
    refusals,
    server,
    shared_folder,
)
from towers.cluster.controller import Controller
from towers.cluster.elastic import ElasticController
from towers.cluster.sessions import session_config, settle_process
from towers.command_line import CommandLine, RefusedError, read_command_line
from towers.data import inputs
from towers.errors import collected, explain, interrupts, output_paths
from towers.evaluation import evaluator, watch
from towers.layout import cluster_spec, moved_towers, placement
from towers.layout.gpus import Gpus
from towers.session import follower, tune
from towers.session.progress import Console
from towers.session.stop import StopOnSignal


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; returns the exit status."""
    command = None
    try:
        with interrupts.raised():
            command = read_command_line(sys.argv if argv is None else argv)
            if command.config.output.check_flags:
                return _explained(command, lambda: _check(command))
            if command.spec:
                proxies.bypass_proxies(command.spec, os.environ)
            role = command.spec.role if command.spec else None
            return _ROLES[role](command, Console(sys.stdout))
    except (TrainingError, output_paths.OutputError, messages.ClusterError) as error:
        status = collected.refuse([_words(error)], status=1)
        return _tell_others(status, error, command)
    except ValueError as error:  # from before the first step
        return _tell_others(collected.refuse_settings(error), error, command)
    except OSError as error:
        return collected.not_printed(error)
    except KeyboardInterrupt as error:  # where there was no step to finish
        return _tell_others(_stopped(interrupts.of(error), command), error, command)


def _tell_others(status: int, error: BaseException, command: CommandLine | None) -> int:
    """Tells the other tasks of a cluster that this one ends; returns the status.

    A ps or worker that failed may be started again, so only its refusal is told.
    """
    spec = error.spec if isinstance(error, RefusedError) else command and command.spec
    if not spec or (command and command.config.output.check_flags):
        return status
    if isinstance(error, ValueError):
        refusals.share(spec, collected.sentences(error), status=status)
    elif spec.role == cluster_spec.CONTROLLER:
        stopped = isinstance(error, KeyboardInterrupt)
        late = {"seconds": 0.0} if stopped else {}
        refusals.share(spec, [], status=status, **late)
    return status


def _words(error: BaseException) -> str:
    """What happened, with settings as flags."""
    words = error.sentence if isinstance(error, TrainingError) else str(error)
    return words or type(error).__name__


def _stopped(error: interrupts.Interrupted, command: CommandLine | None) -> int:
    """Prints what was saved before a signal; returns the exit status."""
    directory = command and command.config.output.train_dir
    latest = directory and checkpoint.latest(directory)
    if command is None or command.config.evaluation.eval:
        left = "nothing was begun; the same command begins it"
    elif latest:
        left = f"the last checkpoint is {latest}; the same command goes on from there"
    else:
        left = "nothing was saved; the same command begins anew"
    if error.unsaved:
        left = f"the last steps could not be saved ({error.unsaved}); {left}"
    collected.say(f"Stopped by {error.name}: {left}.")
    return error.status


def _check(command: CommandLine) -> int:
    """Prints that the command line is legal, if its graph can be built."""
    plan, role = command.plan, command.spec and command.spec.role
    if plan and not command.config.evaluation.eval and role != cluster_spec.EVALUATOR:
        if how := plan.options.pipeline:  # whose blocks might be timed
            how = dataclasses.replace(how, balance="params")
            options = dataclasses.replace(plan.options, pipeline=how)
            plan = dataclasses.replace(plan, options=options)
        built = graph.build(**plan.parts)
        evaluator.check_goal(plan, built)
        given, mode = plan.config.training.init_checkpoint, built.mode
        warm_start.of(given, mode.whole_variables, built.averages)
    print("legal", flush=True)
    return 0


def _alone(command: CommandLine, console: Console) -> int:
    """Trains or evaluates in this process."""
    if command.config.evaluation.eval:
        return _evaluate(command, console)
    return _train(
        command, lambda lock: run.train(_tuned(command, console), console, lock=lock)
    )


def _train(command: CommandLine, act: Callable[..., int]) -> int:
    """Trains; writes the reason of a failure to `train_dir` for waiting evaluators."""
    directory = command.config.output.train_dir

    def noting_failure() -> int:
        try:
            return act(lock)
        except (ValueError, KeyboardInterrupt, saving.TakenError):
            raise  # refused before the first step, stopped, or another run's folder
        except BaseException as error:
            # A failure before the first checkpoint is refused, too.
            saved = directory and checkpoint.latest(directory)
            if saved or not _damage(command, error):
                run_status.leave(directory, _words(error))
            raise

    with output_paths.held("train_dir", directory) as lock:
        return _explained(command, noting_failure, saves=True)


def _tuned(command: CommandLine, console: Console) -> planning.Plan:
    """The plan of the run, in the fastest mode if that was asked for."""
    flags = command.config.variables
    if flags.variable_update != tune.AUTO:
        return command.planned
    choice = tune.choose(command.planned, console, again=flags.tune_again)
    return planning.make(tune.settled(command.config, choice), models.get)


def _control(command: CommandLine, console: Console) -> int:
    """Trains or evaluates on the cluster whose controller this is."""
    if command.config.evaluation.eval:
        absent = _absence(command, console)
        act = functools.partial(watch.evaluate_checkpoints, absent=absent)
        return _explained(command, lambda: _on_cluster(command, console, act))
    act = functools.partial(_on_cluster, command, console)
    return _train(command, lambda lock: act(functools.partial(run.train, lock=lock)))


def _on_cluster(command: CommandLine, console: Console, act: Callable[..., int]) -> int:
    config, spec = command.config, command.cluster
    folder = None if config.evaluation.eval else config.output.train_dir
    with _sessions(command, console) as sessions, shared_folder.marked(folder) as mark:
        name = os.path.basename(mark)
        server.announce(sessions.target, spec, console, sessions.hear, mark=name)
        if config.cluster.shared_train_dir:
            sessions.mark = mark
        status = act(command.planned, console, sessions)
        with StopOnSignal():  # the run has ended; signals are ignored
            sessions.dismiss(status)
        return status


def _sessions(command: CommandLine, console: Console) -> Controller:
    """The sessions of a client; starts its server."""
    where, flags = command.planned.placement, command.config.cluster
    if command.cluster.me in command.cluster.with_towers:
        _check_gpus(where, command.config.devices)
    session = session_config(where, command.config.devices)
    server_config = _server_config(where, command.cluster, session)
    needs = (where.kind, where.per_task)
    if command.cluster.elastic:
        return ElasticController(
            command.cluster,
            server_config,
            flags=flags,
            most=membership.most_workers(command.planned),
            needs=needs,
            console=console,
        )
    return Controller(
        command.cluster,
        server_config,
        needs=needs,
        stall_secs=flags.stall_secs,
        wait_secs=flags.wait_secs,
        console=console,
    )


def _server_config(
    where: placement.Placement,
    spec: cluster_spec.ClusterSpec,
    session: tf.compat.v1.ConfigProto,
) -> tf.compat.v1.ConfigProto:
    """The configuration of this task's server, from that of sessions."""
    config = placement.server_config(where, spec.me, session)
    if spec.elastic and spec.me.job == "worker":
        moved_towers.make_room(config)
    return config


def _follow(command: CommandLine, console: Console) -> int:
    """Trains with the cluster's controller until it says that training has ended."""
    sessions, spec = _sessions(command, console), command.cluster
    statuses, report_dropout, _ = server.announce(sessions.target, spec, console)
    console(f"{spec.me} follows {spec.controller} at {spec.address(spec.me)}.")

    def work() -> None:
        status = 1
        try:
            act = functools.partial(follower.follow, command.planned, sessions)
            status = _explained(command, lambda: act(report_dropout))
        except messages.ClusterError as error:
            collected.refuse([f"{spec.me}: {error}"], status=1)
        except ValueError as error:
            words = [f"{spec.me}: {text}" for text in collected.sentences(error)]
            collected.refuse(words, status=1)
            _tell_others(1, error, command)
        finally:
            statuses.put(status)

    threading.Thread(target=work, daemon=True).start()
    return server.await_dismissal(
        statuses, spec, server.Patience.of(command.config.cluster), console
    )


def _serve(command: CommandLine, console: Console) -> int:
    """Serves the cluster's controller until it says that training has ended."""
    devices, spec = command.config.devices, command.cluster
    where = placement.on_cluster(
        spec, devices.num_gpus, kind=devices.device, gpus=Gpus.of(devices)
    )
    if spec.me.job == "worker":
        _check_gpus(where, devices)
        number = _prepare(command, where, console)
        if spec.elastic:
            spec = dataclasses.replace(spec, num_examples=number)
    return server.serve(
        spec,
        _server_config(where, spec, session_config(where, devices)),
        server.Patience.of(command.config.cluster),
        console,
    )


def _check_gpus(where: placement.Placement, devices: DeviceFlags) -> None:
    """Refuses more GPUs than this machine has, of a task with towers."""
    if where.kind == "gpu":
        visible = len(tf.config.list_physical_devices("GPU"))
        Gpus.of(devices).check(devices.num_gpus, visible)


def _prepare(
    command: CommandLine, where: placement.Placement, console: Console
) -> int | None:
    """Prepares the data set on this worker's disk if the worker reads a part of it.

    Returns:
      its number of examples, if that is the controller's; None if it is not known.
    """
    settle_process(where, command.config.devices)
    try:
        model = models.get(command.config.model.model)
        source, _ = planning.sources_of(command.config, model)
        return None if model.stateful else source.num_examples
    except ValueError as error:  # it may be on the controller's disk only
        console(f"{command.cluster.me}: {'; '.join(collected.sentences(error))}")
        return None


def _evaluate(command: CommandLine, console: Console) -> int:
    """Evaluates, in this process, the checkpoints that others write."""
    act = functools.partial(
        watch.evaluate_checkpoints, absent=_absence(command, console)
    )
    return _explained(command, lambda: act(command.planned, console))


def _absence(command: CommandLine, console: Console) -> Callable[[], str]:
    """Returns a function that says why there will be no more checkpoints, or ""."""
    spec, wait_secs = command.spec, command.config.cluster.wait_secs
    directory = command.config.output.train_dir or ""
    if spec and spec.role == cluster_spec.EVALUATOR and spec.jobs:
        absence = server.Absence(spec, wait_secs=wait_secs)
        return shared_folder.EvaluatorsView(spec, directory, absence)
    seconds = wait_secs if spec else watch.DESERTED_SECONDS
    return watch.Desertion(directory, seconds=seconds, console=console)


def _launch(command: CommandLine, console: Console) -> int:
    """Starts the cluster's tasks on this machine; this process becomes the launcher."""
    flags, where = command.config.cluster, command.planned.placement
    if not command.config.evaluation.eval:
        with output_paths.held("train_dir", command.config.output.train_dir):
            pass  # the controller would say so, too, when all tasks are started
    limits = ("max_restarts", "stall_secs", "wait_secs", "elastic")
    launcher_flags = ("local_cluster", "allow_open_ports", "max_restarts", "device")
    controller = {} if command.cluster.between else {"controller": 1}
    local_cluster.become(
        {**(flags.local_tasks or {}), **controller},
        parse.arguments(command.config, without=launcher_flags),
        where=where,
        limits={name: getattr(flags, name) for name in limits},
        allow_open_ports=flags.allow_open_ports,
    )


_ROLES: dict[str | None, Callable[[CommandLine, Console], int]] = {
    None: _alone,
    cluster_spec.CONTROLLER: _control,
    cluster_spec.SERVER: _serve,
    cluster_spec.FOLLOWER: _follow,
    cluster_spec.EVALUATOR: _evaluate,
    cluster_spec.LAUNCHER: _launch,
}


def _explained(
    command: CommandLine, act: Callable[[], int], *, saves: bool = False
) -> int:
    """Calls `act`; prints a sentence for TensorFlow errors that the user can fix.

    If `act` saves, the sentence about damaged data also names the last checkpoint.
    """
    try:
        return act()
    except tf.errors.OpError as error:
        sentence = _damage(command, error)
        if sentence and saves:
            sentence += f"; {checkpoint.left(command.config.output.train_dir)}"
        sentence = sentence or explain.sentence(error)
        if not sentence:
            raise
        return collected.refuse([sentence], status=1)


def _damage(command: CommandLine, error: BaseException) -> str | None:
    """What is wrong with the data, if the error is about them."""
    splits = (command.planned.source, command.planned.eval_source)
    damage = inputs.explain(error, *(source for source in splits if source is not None))
    if damage and command.spec and command.planned.source.path:
        damage += "; each worker reads its share of it there, on its own disk"
    return damage


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
