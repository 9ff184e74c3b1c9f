"""Faults of a simulated world, and how likely each of them is."""

from __future__ import annotations

from dataclasses import dataclass


class WorkerDied(BaseException):
    """The simulated worker is killed at this very step."""


@dataclass
class Faults:
    """The likelihood of each fault, per chance it gets."""

    worker_death: float = 0.002
    driver_death: float = 0.0007
    death_in_upload: float = 0.01
    storage_error: float = 0.01
    lost_notification: float = 0.1
    repeated_order: float = 0.05
    zombie: float = 0.3
    #: A worker stops answering and does not die: at any step; and before it has done anything.
    hang: float = 0.00015
    hang_at_start: float = 0.002
    #: When a driver dies: one file of its newest checkpoint is damaged, if there is an older checkpoint, or if it is
    #: the final one of a stop with a savepoint.
    damage: float = 0.3
    #: It is its entry in the history instead: lost, cut short, replaced by another; or another is copied on top.
    history: float = 0.4
    #: Not faults, but wishes that must not disturb anything: another parallelism; a savepoint; a stop with a savepoint,
    #: from which the job then goes on.
    rescale: float = 0.0006
    savepoint: float = 0.0004
    stop: float = 0.0003
    #: It goes on from its newest checkpoint instead, which is the final one of the stop; that may be damaged by then.
    latest_after_stop: float = 0.5
    #: The job's folder is swept from outside.
    sweep: float = 0.002
    #: A driver that takes over, or a rescale, also brings another number of key groups.
    key_groups: float = 0.3
    #: The job rescales itself, by loads that are made up.
    autoscale: float = 0.2
    #: Storage takes no more writes, for good: the job has to end.
    sealed: float = 0.0
