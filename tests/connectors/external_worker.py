"""A worker that keeps counts in an outside store and is killed at a moment of its choice.

    python external_worker.py <folder> <before|during|after>

Reads ``<folder>/store``, counts 20 keys over two checkpoints, leaves the files of both in ``<folder>/parts-<n>``, and
dies with SIGKILL before, during or after the second is applied to the store.
"""

import os
import signal
import sys
from pathlib import Path

import cloudpickle

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.connectors.redis import session as redis_session
from moorline.model.key_groups import KeyGroupRange
from moorline.state.external.backend import ExternalBackend
from moorline.testing.contracts.backend.storage import write

COUNT, GROUPS = ValueStateDescriptor("count", int, default=0), KeyGroupRange(0, 16)


def backend_over(store, attempt, parts=(), restored=None):
    """A subtask that owns everything."""
    backend = ExternalBackend(
        "op", GROUPS.end, store=store, job="killed", key_groups=GROUPS, attempt=attempt, restored=restored
    )
    backend.restore([part.restored(GROUPS) for part in parts])
    count = backend.bind(COUNT)
    backend.check_all_bound()
    return backend, count


def add_one(backend, count, keys):
    backend.prefetch(keys)
    for key in keys:
        backend.current.key = key
        count.update(count.value() + 1)
    backend.flush()


def checkpoint(backend, number, completed):
    taken = backend.snapshot(number, completed)
    parts = write(taken, GROUPS, [], "external")
    taken.done([part.handle for part in parts])
    return parts


def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder, moment):
    backend, count = backend_over(cloudpickle.loads((folder / "store").read_bytes()), attempt=1)
    for number in (1, 2):
        add_one(backend, count, range(20))
        parts = checkpoint(backend, number, number - 1)
        (folder / f"parts-{number}").write_bytes(cloudpickle.dumps(parts))
        if number == 2:
            session = backend._connection.session()
            if moment == "before":
                die()
            if moment == "during":
                redis_session.ROWS_AT_ONCE = 7  # several scripts for one checkpoint
                session._before_the_end = die
        backend.confirmed(number)
    die()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
