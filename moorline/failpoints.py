"""Named points at which a test makes the process fail, exactly there.

A point does nothing unless ``MOORLINE_FAILPOINTS`` is set in the driver's environment, for example

    ckpt.uploaded@3:kill,sink.commit.before:raise

which kills the process with SIGKILL the third time it reaches ``ckpt.uploaded`` and raises the first time it reaches
``sink.commit.before``. The driver hands the plan on to its workers. Actions:

    kill             SIGKILL to this process
    kill_parent      SIGKILL to the executor's JVM that this Python worker belongs to
    kill_file(name)  SIGKILL to the process whose number stands in <folder>/<name>.pid
    stop             SIGSTOP to this process: a zombie in the making
    stop_parent      SIGSTOP to the executor's JVM that this Python worker belongs to
    stop_file(name)  SIGSTOP to the process whose number stands in <folder>/<name>.pid
    raise, enospc    an exception
    sleep(seconds)   a pause

When ``MOORLINE_FAILPOINTS_DIR`` names a folder, a point fires once for all processes: the first to reach it leaves a
mark there, so that the restarted attempt is not hit again. ``point?name:action`` waits until there is a file ``name``
in that folder, and counts from then on.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from pathlib import Path
from typing import NamedTuple


class Plan(NamedTuple):
    """The failures to come, and the folder for marks and process numbers."""

    text: str = ""
    folder: str = ""


_counts: dict[str, int] = {}
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class _Point(NamedTuple):
    times: int
    #: The file that has to be there first; empty: none.
    awaited: str
    action: str


def _parse(text: str) -> dict[str, _Point]:
    plan = {}
    for part in filter(None, text.split(",")):
        found = re.fullmatch(r"([\w.]+)(?:@(\d+))?(?:\?(\w+))?:([\w.()-]+)", part.strip())
        if not found:
            raise ValueError(f"MOORLINE_FAILPOINTS: cannot read {part!r}; write point@count:action")
        plan[found[1]] = _Point(int(found[2] or 1), found[3] or "", found[4])
    return plan


current = Plan(os.environ.get("MOORLINE_FAILPOINTS", ""), os.environ.get("MOORLINE_FAILPOINTS_DIR", ""))
_plan = _parse(current.text)


def arm(plan: Plan) -> None:
    """Set the plan of this process."""
    global current, _plan
    current, _plan = plan, _parse(plan.text)
    _counts.clear()


def failpoint(name: str) -> None:
    """Fail here if the plan says so."""
    if not _plan:
        return
    planned = _plan.get(name)
    if planned is None or (planned.awaited and not (Path(current.folder) / planned.awaited).exists()):
        return
    _counts[name] = _counts.get(name, 0) + 1
    if _counts[name] == planned.times and _is_first(name):
        _act(name, planned.action)


def _is_first(name: str) -> bool:
    if not current.folder:
        return True
    try:
        with open(Path(current.folder) / name, "x") as mark:
            mark.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def _act(name: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action in ("kill_parent", "stop_parent"):
        # A Python worker's parent is the daemon that forked it; the executor's JVM is the daemon's parent.
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(daemon.rpartition(")")[2].split()[1]), _SIGNALS[action[:4]])
    elif action.startswith(("kill_file(", "stop_file(")):
        os.kill(int((Path(current.folder) / f"{action[10:-1]}.pid").read_text()), _SIGNALS[action[:4]])
    elif action == "raise":
        raise RuntimeError(f"failpoint {name}")
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "enospc":
        raise OSError(errno.ENOSPC, f"failpoint {name}: no space left on device")
    elif action.startswith("sleep("):
        time.sleep(float(action[6:-1]))
    else:
        raise ValueError(f"MOORLINE_FAILPOINTS: no action {action!r}")
