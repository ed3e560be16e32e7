"""The reference of a case: one tower on the joined batch.

If a case normalizes parts of its batch by themselves, the reference computes its batch
in the same parts.  Modes that do not take the steps of one tower have other references,
see `agreement`.
"""

import dataclasses
import threading
from typing import Any, NamedTuple

from models.model import Model
from towers import graph
from towers.compute.sync_batch_norm import BATCH_NORM
from towers.data.source import Feed, Groups, Source
from towers.gradients.exchange import GradientExchange
from towers.layout import placement as placement_lib
from towers.layout.gpus import Gpus
from towers.optimizers.optimizer import Update
from towers.variable_update.base import VariableUpdate
from towers.variable_update.modes import DEFAULT, VARIABLE_UPDATES
from towers.verification.cases import Modes
from towers.verification.rounding_reference import RoundingReference
from towers.verification.verdict import Case

# A model may keep tensors of its graph between blocks, so one graph is built at a time.
_BUILDING = threading.Lock()


@dataclasses.dataclass(frozen=True)
class TrainingSubject:
    """The model, data and options of a comparison.

    Attributes:
      model: the model.
      source: gives the batches.
      update: optimizer, learning rate, weight decay.
      global_batch: examples per step, of all towers together.
      num_steps: of every run.
      bound: the largest difference that counts as equal, relative to the largest
        element of the variable, and to the largest change of an element.
      device: `cpu`, `gpu` or `auto`, as in `placement.local`.
      gpus: as in `placement.local`.
      options: of every train graph; the case replaces some of them.
    """

    model: Model
    source: Source
    update: Update
    global_batch: int
    num_steps: int = 5
    bound: float = 1e-5
    device: str = "cpu"
    gpus: Gpus = Gpus()  # noqa: RUF009 - frozen
    options: graph.Options = graph.Options(batch_size=1)  # noqa: RUF009 - frozen


class References:
    """The references of cases.

    Attributes:
      subject: of the comparison.
    """

    def __init__(self, subject: TrainingSubject) -> None:
        self.subject = subject
        self._joined: dict[Pieces, RoundingReference] = {}
        # Of the references of modes that are not exact, only those of the latest mode
        # and number of towers are kept, as they are many and may be large.
        self._latest: tuple[str, int] | None = None
        self._of_property: dict[Pieces, list[RoundingReference]] = {}

    def of(self, case: Case, train: graph.TrainGraph) -> list[RoundingReference]:
        """One reference for all towers, or one for each if they exchange nothing."""
        mode, pieces = train.mode, _pieces_of(self.subject, case, train)
        if mode.exact:
            if pieces not in self._joined:
                self._joined[pieces] = _trained(self.subject, pieces)
            return [self._joined[pieces]]
        if self._latest != (case.variable_update, case.num_towers):
            self._latest = case.variable_update, case.num_towers
            self._of_property.clear()
        if pieces not in self._of_property:
            run = _OF_PROPERTY[mode.joined, mode.together]
            self._of_property[pieces] = run(self.subject, case, pieces)
        return self._of_property[pieces]


class Pieces(NamedTuple):
    """How the reference divides its batch; by default it does not.

    Attributes:
      num_towers: number of towers, with a part each.
      rounds: in which each tower computes its part.
      batch_norm: a row of `sync_batch_norm.BATCH_NORM`.
      batch_sizes: of the towers, if they differ; else ().
    """

    num_towers: int = 1
    rounds: int = 1
    batch_norm: str = "micro_batch"
    batch_sizes: tuple[int, ...] = ()


def _pieces_of(subject: TrainingSubject, case: Case, train: graph.TrainGraph) -> Pieces:
    """The parts of a reference of a case, or of one of its independent towers."""
    if all(rule.is_state for rule, _ in train.template.statistics):
        return Pieces()
    count, number = case.num_towers, case.pieces
    reach = BATCH_NORM[subject.options.batch_norm]
    if case.batch_sizes and not reach.towers:  # one tower has no such rounds
        return Pieces(count, batch_sizes=case.batch_sizes)
    number = 1 if reach.micro_batches else number
    if reach.towers and count > 1 and number > 1:
        # Each round has rows of every tower, so the reference has as many towers.
        return Pieces(count, number, subject.options.batch_norm)
    if train.mode.joined and train.mode.together and not reach.towers:
        number *= count
    if train.mode.exact and (count, case.pipeline) == (1, None):
        return Pieces(num_towers=number)
    return Pieces(rounds=number)


def _trained(
    subject: TrainingSubject, pieces: Pieces, mode: str = DEFAULT, updates: int = 1
) -> RoundingReference:
    options = dataclasses.replace(subject.options, batch_norm=pieces.batch_norm)
    subject = dataclasses.replace(subject, options=options)
    case = Case(
        mode, pieces.num_towers, rounds=pieces.rounds, batch_sizes=pieces.batch_sizes
    )
    train = build(subject, case, VARIABLE_UPDATES)
    return RoundingReference(train, subject.num_steps, updates)


def _on_its_rows(
    subject: TrainingSubject, case: Case, pieces: Pieces
) -> list[RoundingReference]:
    """For each tower, one tower on the rows of that tower.

    Its epochs pass as fast as those of all towers together.
    """
    rate, count = subject.update.learning_rate, case.num_towers
    update = dataclasses.replace(
        subject.update, learning_rate=lambda epochs: rate(epochs * count)
    )
    options = subject.options
    options = dataclasses.replace(options, epochs=options.epochs / count)
    return [
        _trained(
            dataclasses.replace(
                subject,
                source=_Rows(subject.source, tower, count),
                update=update,
                options=options,
                global_batch=subject.global_batch // count,
            ),
            pieces,
        )
        for tower in range(count)
    ]


def _as_late(
    subject: TrainingSubject, case: Case, pieces: Pieces
) -> list[RoundingReference]:
    return [_trained(subject, pieces, case.variable_update)]


def _one_by_one(
    subject: TrainingSubject, case: Case, pieces: Pieces
) -> list[RoundingReference]:
    """One tower that takes a step for each update of the towers."""
    size = subject.global_batch // case.num_towers
    tower_subject = dataclasses.replace(subject, global_batch=size)
    return [_trained(tower_subject, pieces, updates=case.num_towers)]


# (joined, together) of a mode that is not exact -> function that makes its reference.
_OF_PROPERTY = {
    (False, True): _on_its_rows,
    (True, True): _as_late,
    (False, False): _one_by_one,
}


class _Rows:
    """A source that gives one tower the rows of tower `tower` of `count`."""

    def __init__(self, source: Source, tower: int, count: int):
        self.num_classes = getattr(source, "num_classes", None)
        self.num_examples = source.num_examples
        self.vocabulary = getattr(source, "vocabulary", ())
        self._source, self._tower, self._count = source, tower, count

    def feed(self, groups: Groups, **options: Any) -> Feed:
        ((host, (device,)),) = groups
        feed = self._source.feed([(host, [device] * self._count)], **options)
        return feed._replace(batches=[feed.batches[self._tower]])


def build(subject: TrainingSubject, case: Case, modes: Modes) -> graph.TrainGraph:
    """The train graph of a case; threads build graphs one after another.

    Raises:
      ValueError: the model cannot be trained in this way.
    """
    exchange = case.exchange or _exchange(modes[case.variable_update])
    if case.transfer:
        exchange = dataclasses.replace(
            exchange, compact_gradient_transfer=case.transfer
        )
    with _BUILDING:
        return graph.build(
            subject.model,
            subject.source,
            subject.update,
            placement=placement_lib.local(
                case.num_towers * case.devices,
                kind=subject.device,
                gpus=subject.gpus,
                num_stages=case.devices,
            ),
            options=dataclasses.replace(
                subject.options,
                batch_size=subject.global_batch // case.num_towers // case.rounds,
                tower_batch_sizes=case.batch_sizes,
                accumulate_steps=case.rounds,
                variable_update=case.variable_update,
                exchange=exchange,
                pipeline=case.pipeline,
                shards=case.shards,
                limit=None,
            ),
            modes=modes,
        )


def _exchange(mode: type[VariableUpdate]) -> GradientExchange:
    """The exchange of a reference; asynchronous towers step one at a time."""
    return GradientExchange() if mode.together else GradientExchange(max_staleness=0)
