"""Faults planted one at a time, each of which some test must find.

    python -m tests.mutants            # all: some 15 minutes on 2 cores
    python -m tests.mutants --changed  # those of what differs from main

A row of a table here is a fault that a careless commit could make: one place of one
file, and the tests that must fail with it.  It is planted in a copy of the tree, the
tests run there, and it is taken back.  A fault that no test finds is a survivor: write
the test.  A new file of `towers/` gets rows as it gets tests.

This is a table and not a mutation tester off the shelf, because the tests' time would
not do for one.  cosmic-ray finds 29,025 mutants in `towers/` and runs one command for
all of them: of 8 minutes, or, were it told the file's own test, of 4 s for TensorFlow's
import alone, which is 16 hours on 2 cores.  mutmut chooses tests by which functions
they call, but what builds a graph is called by nearly every test, and it forks the
process after tests have run sessions in it, whose threads do not survive that.
mutatest draws a sample, and ends with Python 3.8.  None of them makes the faults that
matter most here, a missing dependency, a mean for a sum, the seed of another thing.
"""

from tests.mutants import (
    cluster,
    compute,
    data,
    errors,
    flags_and_models,
    gradients,
    layout,
    mains,
    pipelines,
    session,
    variable_update,
    verification,
)
from tests.mutants.fault import Fault

FAULTS: list[Fault] = [
    *compute.FAULTS,
    *data.FAULTS,
    *errors.FAULTS,
    *flags_and_models.FAULTS,
    *gradients.FAULTS,
    *layout.FAULTS,
    *mains.FAULTS,
    *pipelines.FAULTS,
    *session.FAULTS,
    *cluster.FAULTS,
    *variable_update.FAULTS,
    *verification.FAULTS,
]
