"""One rule on which flags go together: `needs("save_model_secs", "train_dir")`.

A flag stands for any value but its default, and `flag=value` for that value, default or
not.  A text at the end names other flags as `flags.problem` says.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from flags.field import listing
from flags.problem import Problem, mention, with_flags

NEVER = "does not go with"
NEEDS = "needs"
AT_MOST_ONE = "is one of"


class Term(NamedTuple):
    """A flag, or one of its values.

    Attributes:
      name: of the flag.
      value: as on the command line; "" for any value but the default.
    """

    name: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Term":
        """The term that is written `flag` or `flag=value`."""
        name, _, value = text.partition("=")
        return cls(name, value)

    def holds(self, settings: Mapping[str, Any], given: Collection[str]) -> bool:
        """Whether the flag has such a value.

        Args:
          settings: all that can be trusted, by name.
          given: names of those that differ from their default.
        """
        if not self.value:
            return self.name in given
        if self.name not in settings:
            return False
        value = settings[self.name]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return self.value == text

    @property
    def mention(self) -> str:
        """The term as the texts of problems have it."""
        value = {"": None, "true": True, "false": False}.get(self.value, self.value)
        return mention(self.name, value)

    def __str__(self) -> str:
        return with_flags(self.mention)


class Rule(NamedTuple):
    """One rule.

    Attributes:
      flag: what the rule is about.
      relation: `NEVER`, `NEEDS` or `AT_MOST_ONE`.
      others: what it excludes, or the alternatives of which it needs one.
      why: the end of the sentence, from the comma or semicolon on; may be empty.
    """

    flag: Term
    relation: str
    others: tuple[Term, ...]
    why: str

    @property
    def names(self) -> set[str]:
        """Of all its flags."""
        return {term.name for term in (self.flag, *self.others)}

    def problem(
        self, settings: Mapping[str, Any], given: Collection[str]
    ) -> Problem | None:
        """The problem of settings that break the rule; None if they keep it.

        Args:
          settings, given: as `Term.holds` has them.
        """
        terms = (self.flag, *self.others)
        active = [term for term in terms if term.holds(settings, given)]
        if self.relation == NEEDS:
            if active != [self.flag]:
                return None
            words = f"{NEEDS} {listing([term.mention for term in self.others], 'or')}"
        else:
            if len(active) < 2 or (self.relation == NEVER and active[0] != self.flag):
                return None
            others = (mention(t.name, settings[t.name]) for t in active[1:])
            words = f"{NEVER} {' and '.join(others)}"
        name = active[0].name
        return Problem(name, settings[name], words + self.why)

    def follows_from(self, other: "Rule") -> bool:
        """Whether settings that are mended for `other` keep this rule, too.

        It then needs no sentence of its own.
        """
        both_need = self.relation == other.relation == NEEDS
        same = self.flag.name == other.flag.name
        return both_need and same and set(other.others) < set(self.others)


def never(flag: str, other: str, why: str = "") -> Rule:
    """The two exclude each other; `why` begins with a comma or a semicolon."""
    return Rule(Term.parse(flag), NEVER, (Term.parse(other),), why)


def needs(flag: str, *others: str) -> Rule:
    """The first has no effect without any of the others."""
    return Rule(Term.parse(flag), NEEDS, tuple(map(Term.parse, others)), "")


def at_most_one(*flags: str) -> Rule:
    """No two of them."""
    first, *others = map(Term.parse, flags)
    return Rule(first, AT_MOST_ONE, tuple(others), "; give one")
