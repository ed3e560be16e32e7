"""The cases that settings describe, and those that are left out."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import tensorflow as tf

from flags.problem import problems_of, wrong_setting
from flags.verify import VerifyFlags
from towers.compute.sync_batch_norm import BATCH_NORM
from towers.gradients.exchange import GradientExchange
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.verification import agreement, cases
from towers.verification.verdict import Case

_NUM_TOWERS = (1, 2, 4)
_NARROW = ("bfloat16", "float16")
_TOO_MANY = {
    "num_stages": "more than the model has blocks, or the machine devices",
    "num_micro_batches": "does not divide every tower's batch",
}


def num_towers(verify: VerifyFlags) -> Sequence[int]:
    """The numbers of towers to compare; by default those for which there are devices.

    Args:
      verify: the section of the settings.
    """
    gpus = _num_gpus(verify)
    by_default = tuple(n for n in _NUM_TOWERS if n <= gpus) or _NUM_TOWERS
    return verify.num_towers or by_default


def check_batch(verify: VerifyFlags, global_batch: int, batch_size: int) -> None:
    """Raises ValueError unless every number of towers can share the batch.

    Args:
      verify: the section of the settings.
      global_batch: examples of a step.
      batch_size: of a tower with the largest number of towers.
    """
    counts = num_towers(verify)
    for count, rounds in itertools.product(counts, _rounds(verify)):
        if global_batch % (count * rounds):
            of = f" in {rounds} rounds" if rounds > 1 else ""
            raise wrong_setting(
                "num_towers",
                tuple(counts),
                f"{count} towers cannot share a batch of {global_batch}, "
                f"{max(counts)} times {batch_size}{of}",
                "choose `batch_size` so that they can",
            )


class Selection:
    """The cases to compare, and why others are left out.

    Args:
      verify: the section of the settings.
      subject: of the comparison.
      specs: of reductions.

    Attributes:
      cases: to be compared, in order.
      left_out: what is not compared because of the model or the optimizer, and why.

    Raises:
      ValueError: a setting names something that is not possible, and the sentence says
        what is; or the model cannot be trained at all.
    """

    def __init__(
        self,
        verify: VerifyFlags,
        subject: agreement.TrainingSubject,
        specs: Sequence[str],
    ):
        self._verify = verify
        self._subject = subject
        self._num_towers = num_towers(verify)
        self._gpus = _num_gpus(verify)
        self._modes = _modes(verify, stateful=subject.model.stateful)
        self._trains = False
        self.left_out: list[str] = []
        packings = verify.gradient_repacking, verify.agg_small_grads_max_bytes
        exchanges = cases.exchanges(specs, *packings)
        names, rounds = self._modes, _rounds(verify)
        chosen = cases.cases(self._num_towers, exchanges, rounds=rounds, names=names)
        chosen += self._narrow(exchanges)
        most, examples = max(self._num_towers), subject.global_batch
        if most > 2:
            chosen += cases.unequal(most, examples, names=names)
        cuts = self._cuts()
        chosen += self._sharded(cuts)
        thorough = verify.pipelines == "all"
        chosen += cases.pipelined(
            self._num_towers, cuts, names=names, thorough=thorough
        )
        self.cases = cases.sorted_once(chosen)

    def _narrow(self, exchanges: Sequence[GradientExchange]) -> list[Case]:
        """Gradients that are sent in 16 bits."""
        wanted = self._verify.compact_gradient_transfer
        optimizer = self._subject.update.optimizer
        dtypes = [tf.as_dtype(d) for d in wanted or _NARROW if d != "float32"]
        if dtypes and optimizer not in cases.LINEAR:
            why = f"a rounded gradient may turn a step of {optimizer} by any amount"
            if wanted:
                raise wrong_setting(
                    "compact_gradient_transfer",
                    tuple(wanted),
                    why,
                    f"write `optimizer={' or '.join(cases.LINEAR)}`",
                )
            self.left_out.append(f"--compact_gradient_transfer: {why}")
            return []
        count = max(self._num_towers)
        if count == 1:
            return []
        kind = "gpu" if self._gpus else "cpu"
        return cases.narrow(count, exchanges, dtypes, names=self._modes, kind=kind)

    def _sharded(self, cuts: cases.Cuts) -> list[Case]:
        """Sharded classifiers and tables; by default those that the model has."""
        shards: list[Shards] = []
        for count in self._verify.num_shards or (2,):
            if count > 1 and count <= (self._gpus or count):
                shards += self._spread(count)
        return cases.sharded(
            self._num_towers,
            shards,
            cuts,
            names=self._modes or list(VARIABLE_UPDATES),
            rounds=_rounds(self._verify),
        )

    def _spread(self, count: int) -> list[Shards]:
        """What can be sharded over `count` devices: classifier, tables, or both."""
        possible, errors = [], []
        for shards in (Shards(classifier=count), Shards(embeddings=count)):
            if error := self._refused(shards=shards):
                errors.append(error)
            else:
                possible.append(shards)
        if self._verify.num_shards and not possible:
            raise errors[0]
        self.left_out += [_cause(error) for error in errors]
        return possible + ([Shards(count, count)] if len(possible) == 2 else [])

    def _cuts(self) -> cases.Cuts:
        """The settings of pipelines; defaults that do not fit are left out."""
        verify = self._verify
        blocks = len(self._subject.model.blocks)
        default = cases.Cuts(blocks, num_devices=self._gpus or None)
        if not self._is_chain():
            return default._replace(stages=())
        return default._replace(
            stages=self._stages(default),
            micro_batches=self._micro_batches(default),
            schedules=verify.schedule or default.schedules,
            recompute=verify.recompute or default.recompute,
            gathered=BATCH_NORM[verify.batch_norm].micro_batches,
        )

    def _is_chain(self) -> bool:
        """Whether the model can be cut between its blocks, if that is wanted."""
        verify = self._verify
        if verify.pipelines == "none":
            return False
        if error := self._refused(pipeline=Pipeline(recompute="block")):
            settings = verify.num_stages, verify.num_micro_batches, verify.recompute
            if verify.pipelines == "all" or any(settings):
                raise error
            self.left_out.append(f"--pipelines: {_cause(error)}")
        return not error

    def _refused(
        self, *, shards: Shards | None = None, pipeline: Pipeline | None = None
    ) -> ValueError | None:
        """Why the model cannot be sharded or cut in this way; None if it can.

        Raises:
          ValueError: it cannot be trained at all.
        """
        try:
            agreement.check(self._subject, shards=shards, pipeline=pipeline)
        except ValueError as error:
            if not self._trains:  # not yet known
                agreement.check(self._subject)
                self._trains = True
            return error
        return None

    def _stages(self, default: cases.Cuts) -> list[int]:
        wanted, blocks = self._verify.num_stages, default.num_blocks
        most = blocks
        if self._gpus:
            most = min(blocks, self._gpus // min(self._num_towers))
        counts = [k for k in wanted or default.stages if k <= most]
        if len(counts) < len(wanted):
            gpus = f", and there are {self._gpus} GPUs" if self._gpus else ""
            raise wrong_setting(
                "num_stages",
                tuple(wanted),
                f"{self._subject.model.name} is a chain of {blocks} blocks{gpus}",
                f"write {most} or fewer",
            )
        self._leave_out("num_stages", default.stages, counts)
        return counts

    def _micro_batches(self, default: cases.Cuts) -> list[int]:
        wanted = self._verify.num_micro_batches
        batches = [self._subject.global_batch // count for count in self._num_towers]
        counts = [
            m
            for m in wanted or default.micro_batches
            if not any(batch % m for batch in batches)
        ]
        if len(counts) < len(wanted):
            common = math.gcd(*batches)
            legal = [str(m) for m in range(1, common + 1) if common % m == 0]
            raise wrong_setting(
                "num_micro_batches",
                tuple(wanted),
                f"must divide every tower's batch, {' and '.join(map(str, batches))}",
                f"write some of {','.join(legal)}",
            )
        self._leave_out("num_micro_batches", default.micro_batches, counts)
        return counts

    def _leave_out(self, flag: str, default: Sequence[int], counts: list[int]) -> None:
        """Notes which of a flag's defaults are not compared."""
        if not getattr(self._verify, flag) and len(counts) < len(default):
            rest = ",".join(str(n) for n in default if n not in counts)
            self.left_out.append(f"--{flag}={rest}: {_TOO_MANY[flag]}")


def _rounds(verify: VerifyFlags) -> Sequence[int]:
    """Rounds of gradient accumulation; one if batch norm needs all examples at once."""
    pieces = BATCH_NORM[verify.batch_norm].micro_batches
    return (1,) if pieces else verify.accumulate_steps


def _modes(verify: VerifyFlags, *, stateful: bool) -> Sequence[str]:
    """The modes to compare; empty for all."""
    names: Sequence[str] = verify.variable_update
    if stateful:
        joined = [name for name, mode in VARIABLE_UPDATES.items() if mode.joined]
        names = names or joined
    if BATCH_NORM[verify.batch_norm].towers:
        joined = [name for name, mode in VARIABLE_UPDATES.items() if mode.joined]
        names = names or joined
        if apart := sorted(set(names) - set(joined)):
            raise wrong_setting(
                "batch_norm",
                verify.batch_norm,
                f"the towers of {', '.join(apart)} do not step together on one model",
                "leave it out of `variable_update`",
            )
    return names


def _num_gpus(verify: VerifyFlags) -> int:
    if verify.device == "cpu":
        return 0
    return len(tf.config.list_physical_devices("GPU")) * verify.logical_gpus


def _cause(error: ValueError) -> str:
    """What is wrong, without the remedy."""
    return dataclasses.replace(problems_of(error)[0], remedy="").sentence()
