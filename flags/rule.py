"""One rule on which flags go together: `needs("save_model_secs", "train_dir")`.

`flag` means that the flag has any value but its default, `flag=value` that it has this
value.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from flags.field import listing
from flags.problem import Problem, mention, with_flags

NEVER = "does not go with"
NEEDS = "needs"
AT_MOST_ONE = "is one of"


class Term(NamedTuple):
    """A flag, or a flag with a value.

    Attributes:
      name: of the flag.
      value: as on the command line; "" means any value but the default.
    """

    name: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Term":
        """Makes a term of `flag` or `flag=value`."""
        name, _, value = text.partition("=")
        return cls(name, value)

    def holds(self, settings: Mapping[str, Any], given: Collection[str]) -> bool:
        """Whether the flag has this value.

        Args:
          settings: name -> value, without settings whose own value is wrong.
          given: names of the settings that differ from their default.
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
        """The term as a `Problem`'s message names it."""
        value = {"": None, "true": True, "false": False}.get(self.value, self.value)
        return mention(self.name, value)

    def __str__(self) -> str:
        return with_flags(self.mention)


class Rule(NamedTuple):
    """One rule.

    Attributes:
      flag: the flag that the rule is about.
      relation: `NEVER`, `NEEDS` or `AT_MOST_ONE`.
      others: the flags that it excludes, or of which it needs one.
      why: the reason, which ends the sentence; it begins with a comma or semicolon, and
        may be empty.
    """

    flag: Term
    relation: str
    others: tuple[Term, ...]
    why: str

    @property
    def names(self) -> set[str]:
        """Names of all its flags."""
        return {term.name for term in (self.flag, *self.others)}

    def problem(
        self, settings: Mapping[str, Any], given: Collection[str]
    ) -> Problem | None:
        """What is wrong with settings that break the rule; None if they keep it.

        Args:
          settings, given: as in `Term.holds`.
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
        """Whether settings that keep `other` keep this rule, too.

        Then only the problem of `other` is shown.
        """
        both_need = self.relation == other.relation == NEEDS
        same = self.flag.name == other.flag.name
        return both_need and same and set(other.others) < set(self.others)


def never(flag: str, other: str, why: str = "") -> Rule:
    """The two exclude each other; `why` is `Rule.why`."""
    return Rule(Term.parse(flag), NEVER, (Term.parse(other),), why)


def needs(flag: str, *others: str) -> Rule:
    """The first has no effect without any of the others."""
    return Rule(Term.parse(flag), NEEDS, tuple(map(Term.parse, others)), "")


def at_most_one(*flags: str) -> Rule:
    """Each two of the flags exclude each other."""
    first, *others = map(Term.parse, flags)
    return Rule(first, AT_MOST_ONE, tuple(others), "; give one")
