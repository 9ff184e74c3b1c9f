"""What every state backend must do, as tests: for ours and for yours.

    class TestMyBackend(KeyedBackendContract):
        def make_backend(self, uid, max_parallelism):
            return MyBackend(uid, max_parallelism)

Needs pytest. A backend that passes can be restored at any parallelism, and a snapshot of it shows the state as it
was at the barrier, whatever the stream has done to it since.
"""

from moorline.testing.backend_contract.base import BackendTests
from moorline.testing.backend_contract.keys import Keys
from moorline.testing.backend_contract.restoring import Restoring
from moorline.testing.backend_contract.snapshots import Snapshots
from moorline.testing.backend_contract.values import Values


class KeyedBackendContract(Values, Keys, Snapshots, Restoring):
    """One test per promise of ``state/backend.py`` and of the five state interfaces. Override ``make_backend``."""


__all__ = ["BackendTests", "KeyedBackendContract"]
