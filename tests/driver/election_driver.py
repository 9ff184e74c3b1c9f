"""One driver of the small job, as ``mo.start`` puts it together, over a cluster that runs nothing.

    python election_driver.py FOLDER TTL [ZOOKEEPER PATH]

Stands for leadership in a process of its own, to be killed or stopped: prints each status that it comes to, and when
it has claimed the job and leads.
"""

from __future__ import annotations

import random
import sys
import time

from driver_worlds import RecordingCluster, small_job
from waiting import PATIENCE

import moorline as mo
from moorline.driver.leadership.election import Election
from moorline.driver.loop import DriverLoop
from moorline.driver.supervision import Supervision
from moorline.model.config.run import RunConfig
from moorline.storage.history import History
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.memory import MemoryStore


class Driver:
    """One candidate."""

    def __init__(self, store: MemoryStore | LocalStore, ha: mo.StorageLease | mo.ZooKeeper, **config: object) -> None:
        graph = small_job().graph()
        checkpoints = mo.Checkpoints("memory://small", interval="1h")
        run = RunConfig(checkpoints=checkpoints, ha=ha, **{"restart": mo.NoRestart(), **config})
        self.history = History(store, graph.job)
        self.cluster = RecordingCluster()
        self.loop = DriverLoop(graph.job)
        self.supervision = Supervision(graph, run, self.history, self.cluster, random.Random(0), lambda: 0)
        self.election = Election(ha, self.history, graph.job, self.loop)
        self.loop.start(self.supervision, Supervision.wait)
        self.election.start()
        self._is_closed = False

    @property
    def status(self) -> mo.JobStatus:
        return self.loop.status

    @property
    def leads(self) -> bool:
        return bool(self.cluster.launched)

    def end(self) -> None:
        """The job comes to its end here."""
        attempt = self.cluster.launched[-1].attempt
        self.loop.post(lambda s, now: s.attempt_ended(attempt, {}, None, now))
        assert self.loop.wait(PATIENCE)
        self.close()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.election.close()


def main() -> None:
    folder, ttl, *zookeeper = sys.argv[1:]
    ha = mo.ZooKeeper(zookeeper[0], path=zookeeper[1], ttl=ttl) if zookeeper else mo.StorageLease(ttl=ttl)
    driver = Driver(LocalStore(folder), ha)
    told, leads = None, False
    while told is None or not told.is_terminal:
        if driver.status is not told:
            told = driver.status
            print(told.value, flush=True)
        if driver.leads and not leads:
            leads = True
            print("leads", flush=True)
        if driver.cluster.cancelled:
            driver.loop.post(lambda s, now: s.attempt_ended(1, None, "cancelled", now))
            driver.loop.wait(PATIENCE)
        time.sleep(0.01)
    print(type(driver.loop.error).__name__, flush=True)
    driver.close()


if __name__ == "__main__":
    main()
