"""Faults planted one at a time, each of which some test must find.

    python -m tests.mutants            # all: some 15 minutes on 2 cores
    python -m tests.mutants --changed  # those of what differs from main

A row of the tables here, `*.txt`, is a fault that a careless commit could make: the old
and the new lines of one place of one file, below the tests that must fail with it.  It
is planted in a copy of the tree, the tests run there, and it is taken back.  A fault
that no test finds is a survivor: write the test.  A new file of `towers/` gets rows as
it gets tests.

This is a table and not a mutation tester off the shelf, because the tests' time would
not do for one.  cosmic-ray finds 29,025 mutants in `towers/` and runs one command for
all of them: of 8 minutes, or, were it told the file's own test, of 4 s for TensorFlow's
import alone, which is 16 hours on 2 cores.  mutmut chooses tests by which functions
they call, but what builds a graph is called by nearly every test, and it forks the
process after tests have run sessions in it, whose threads do not survive that.
mutatest draws a sample, and ends with Python 3.8.  None of them makes the faults that
matter most here, a missing dependency, a mean for a sum, the seed of another thing.
"""

import pathlib

from tests.mutants.fault import Fault, read

FAULTS: list[Fault] = [
    fault
    for path in sorted(pathlib.Path(__file__).parent.glob("*.txt"))
    for fault in read(path.read_text(encoding="utf-8"))
]
