"""The sentence about a task's process that a signal has ended."""

import re
import signal
from collections.abc import Sequence

# Signals that faults in native code raise.
_CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE")
# In the stacks that `faulthandler` writes: the frame of `crash.during`, and the place
# of the thread that crashed.
_SAID = re.compile(r'^  File "towers", line \d+ in (.+)$', re.MULTILINE)
_WHERE = re.compile(
    r'^Current thread .*\n  File "(.+)", line (\d+) in (.+)$', re.MULTILINE
)


def words(number: int, printed: Sequence[str], *, memory_ran_out: bool) -> str:
    """The sentence about the task, after its name.

    Args:
      number: of the signal.
      printed: the task's last lines, if known.
      memory_ran_out: whether the kernel killed a process meanwhile as memory ran out.
    """
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal
        name = f"signal {number}"
    if name not in _CRASHES:
        ran_out = name == "SIGKILL" and memory_ran_out
        why = ", as memory ran out; lower --batch_size" if ran_out else ""
        return f"was killed by {name}{why}"
    stacks = "\n".join(printed)
    if said := _SAID.search(stacks):
        doing = f", in {said[1]}"
    elif where := _WHERE.search(stacks):
        doing = f", at {where[1]}:{where[2]}, in {where[3]}"
    else:
        doing = ""
    return f"crashed in native code ({name}, signal {number}){doing}"


def memory_kills() -> int:
    """How many processes the kernel has killed as memory ran out; 0 if unknown."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            match = re.search(r"^oom_kill (\d+)$", file.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0
