"""The contract of a state backend, as tests: for ours and for yours.

    class TestMyBackend(KeyedBackendContract):
        def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
            return MyBackend(uid, max_parallelism)

Needs pytest. A backend that passes can be restored at any parallelism, and a snapshot of it shows the state as it
was at the barrier, whatever the stream has done to it since. What a class may say about its backend: ``writes_rows``
(False: files of its own kind), ``exact_entries`` (False: ``entries`` is an estimate), ``sweeps_on_access`` (False: it
removes expired state in its own way).

    base, storage                               the vocabulary of the tests; the parts of a snapshot, in memory
    values, keys, windows, timers, peeking      live state
    snapshots, restoring, increments, chains    what is saved, and what comes back
    ttl/rules, maps, restoring                  what expires
    jobs, machines                              the same promises held against a dict, at random
"""

from moorline.testing.contracts.backend.base import BackendTests
from moorline.testing.contracts.backend.chains import Chains
from moorline.testing.contracts.backend.increments import Increments
from moorline.testing.contracts.backend.keys import Keys
from moorline.testing.contracts.backend.peeking import Peeking
from moorline.testing.contracts.backend.restoring import Restoring
from moorline.testing.contracts.backend.snapshots import Snapshots
from moorline.testing.contracts.backend.timers import Timers
from moorline.testing.contracts.backend.ttl.maps import TtlMaps
from moorline.testing.contracts.backend.ttl.restoring import TtlInEventTime, TtlRestoring
from moorline.testing.contracts.backend.ttl.rules import Ttl
from moorline.testing.contracts.backend.values import Values
from moorline.testing.contracts.backend.windows import Windows


class KeyedBackendContract(
    Values,
    Keys,
    Snapshots,
    Restoring,
    Windows,
    Timers,
    Increments,
    Chains,
    Ttl,
    TtlMaps,
    TtlRestoring,
    TtlInEventTime,
    Peeking,
):
    """One test per promise of ``state/backend.py`` and of the five state interfaces. Override ``make_backend``."""


__all__ = ["BackendTests", "KeyedBackendContract"]
