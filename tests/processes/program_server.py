"""Runs programs in a private network, one after the other; a process of its own.

    python -m tests.processes.program_server

Each line of its input is a JSON list: a program, its arguments, the variables of its
environment.  Each answer is one, too: whether it succeeded, and what it printed or its
traceback.  The tasks that the programs start are forked from one process
(`manual_tasks`), which so imports TensorFlow once for all of them.
"""

import contextlib
import io
import json
import os
import sys
import traceback

from towers.cluster import private_network


def main() -> None:
    """Runs programs until the input ends."""
    private_network.enter()
    for line in sys.stdin:
        program, arguments, environment = json.loads(line)
        sys.argv = ["program", *arguments]
        os.environ.clear()
        os.environ.update(environment)
        try:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(program, {})
            answer = [True, printed.getvalue()]
        except Exception:
            answer = [False, traceback.format_exc()]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
