"""Reads and checks the command line of `towers.train`."""

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from typing import NamedTuple

import models
from flags import parse
from flags.config import Config
from flags.problem import Problem, problems_of
from towers import choices, planning
from towers.cluster import ports, roles
from towers.cluster.sessions import settle_process
from towers.compute import xla
from towers.errors import collected
from towers.layout import cluster_spec, tf_config
from towers.session import tune
from towers.variable_update.modes import VARIABLE_UPDATES

# Flag -> the table of its values.
CHOICES = {
    **choices.CHOICES,
    "variable_update": {**VARIABLE_UPDATES, tune.AUTO: None},
}

# Role of a task -> its changes of the settings, which are the same for all tasks.
_READ_BY = {
    cluster_spec.EVALUATOR: roles.for_evaluator,
    cluster_spec.FOLLOWER: roles.for_follower,
}


class CommandLine(NamedTuple):
    """The settings, cluster and plan of a command line and its environment."""

    config: Config
    spec: cluster_spec.ClusterSpec | None
    plan: planning.Plan | None  # None for a task that is only a server

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


class RefusedError(parse.UsageError):
    """A command line that cannot be run.

    Attributes:
      spec: the cluster, if that is known and more than the flags were to be checked.
    """

    def __init__(self, spec: cluster_spec.ClusterSpec | None, *problems: Problem):
        super().__init__(*problems)
        self.spec = spec


def read_command_line(argv: Sequence[str]) -> CommandLine:
    """Reads and checks a command line.

    Raises:
      RefusedError: it is wrong; it has every problem.
      parse.UsageError: it could not be read at all.
    """
    if tf_config.is_sparse(os.environ.get("TF_CONFIG", "")):
        argv = [argv[0], "--elastic", *argv[1:]]  # a flag that the user gave wins
    config, problems = _parsed(argv)
    at_fault = {problem.setting for problem in problems}
    if config.devices.xla:  # before the plan opens this process's first session
        xla.allow_on_cpu()
    spec = plan = None
    cluster_ok = at_fault.isdisjoint(vars(config.cluster))  # all its flags are right
    try:
        if cluster_ok:
            config = _with_address(config)
            evaluates = config.evaluation.eval
            spec = cluster_spec.find(config.cluster, os.environ, evaluates=evaluates)
    except ValueError as error:
        problems, cluster_ok = [*problems, *problems_of(error)], False
    role = spec.role if spec else None
    config, problems = _as_read_by(role, config, problems)
    try:
        # Which flags are legal depends on the cluster.
        if cluster_ok and role != cluster_spec.SERVER:
            plan = _plan(config, spec)
    except collected.PlanError as error:
        # Leave out problems caused by the default that replaces a wrong value.
        problems += [p for p in error.problems if at_fault.isdisjoint(p.settings)]
    if problems:
        raise RefusedError(None if config.output.check_flags else spec, *problems)
    return CommandLine(config, spec and _compared(spec, config, plan), plan)


def _compared(
    spec: cluster_spec.ClusterSpec, config: Config, plan: planning.Plan | None
) -> cluster_spec.ClusterSpec:
    """The cluster, with what other tasks compare with theirs."""
    clients = (cluster_spec.CONTROLLER, cluster_spec.FOLLOWER)
    if spec.between and spec.role in clients:
        return dataclasses.replace(spec, flags=roles.agreed(config))
    if not spec.elastic or spec.me.job == "ps":
        return spec
    # The examples of a stateful model are windows, whose number depends on the batch.
    known = plan is not None and not plan.model.stateful
    number = plan.source.num_examples if plan is not None and known else None
    flags = roles.agreed_by_workers(config)
    return dataclasses.replace(spec, flags=flags, num_examples=number)


def _as_read_by(
    role: str | None, config: Config, problems: list[Problem]
) -> tuple[Config, list[Problem]]:
    """The settings of a command line, and its problems, for a task with this role."""
    if role in _READ_BY:
        config = _READ_BY[role](config)
    if role in (cluster_spec.SERVER, cluster_spec.FOLLOWER):
        problems = [p for p in problems if not roles.is_controllers(p)]
    if role == cluster_spec.EVALUATOR:
        if not (config.output.train_dir or config.cluster.job_name):
            words = "TF_CONFIG: an evaluator needs --train_dir"
            problems = [*problems, Problem("", None, words)]
    return config, problems


def _with_address(config: Config) -> Config:
    """The settings; a worker that joins gets a free port of this host."""
    controller = config.cluster.join
    if not controller or config.cluster.worker_hosts:
        return config
    hosts = (ports.own_address(controller),)
    cluster = dataclasses.replace(config.cluster, worker_hosts=hosts)
    return dataclasses.replace(config, cluster=cluster)


def _plan(config: Config, spec: cluster_spec.ClusterSpec | None) -> planning.Plan:
    """The plan of a run on the cluster; for an evaluator, outside the cluster."""
    settings, watched = tune.settled(config), None
    if spec and spec.role == cluster_spec.EVALUATOR:
        spec, watched = None, spec
    with contextlib.suppress(ValueError):  # of which the plan says all
        settle_process(planning.placement_of(settings, spec), settings.devices)
    return planning.make(settings, models.get, spec, watched=watched)


def _parsed(argv: Sequence[str]) -> tuple[Config, list[Problem]]:
    """The settings, with defaults in place of wrong values, and the problems.

    Raises:
      parse.UsageError: the command line could not be read at all.
    """
    try:
        return parse.parse(argv, CHOICES), []
    except parse.UsageError as error:
        if not isinstance(error.config, Config):
            raise
        return error.config, [*error.problems]
