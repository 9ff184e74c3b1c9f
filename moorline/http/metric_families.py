"""The metrics that a job shows to Prometheus, by name: kind, labels, and what they say.

Names are kept: dashboards and alerts are built on them. ``docs/reference/metrics.md`` lists them, and a test holds the
two and the Grafana dashboard together. All have the label ``job``; those of a subtask also ``operator`` (the uid that
its chain begins with) and ``subtask``, those of an operator its own uid and ``subtask``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Scope = Literal["job", "subtask", "operator"]


class Family(NamedTuple):
    """One metric."""

    kind: Literal["counter", "gauge"]
    scope: Scope
    help: str
    #: Beside those of its scope.
    labels: tuple[str, ...] = ()


#: Without ``moorline_`` in front; counters as they are queried, with ``_total``.
FAMILIES: dict[str, Family] = {
    # The job.
    "job_status": Family("gauge", "job", "1 for the status that the job has, 0 for all others.", ("status",)),
    "job_attempt": Family("gauge", "job", "The number of the running attempt; 0 between two."),
    "job_uptime_seconds": Family("gauge", "job", "How long ago this run of the job began."),
    "job_attempts_total": Family("counter", "job", "Attempts that were started in this run."),
    "job_failures_total": Family("counter", "job", "Attempts that failed in this run."),
    "job_losses_total": Family(
        "counter", "job", "Attempts that failed because a subtask was lost, by the machine that it was on.", ("host",)
    ),
    "job_subtasks": Family("gauge", "job", "Subtasks of the last attempt."),
    "job_subtasks_running": Family("gauge", "job", "Those of them that run."),
    # Checkpoints.
    "checkpoints_completed_total": Family("counter", "job", "Checkpoints and savepoints that completed in this run."),
    "checkpoints_failed_total": Family("counter", "job", "Checkpoints that did not complete.", ("reason",)),
    "checkpoints_in_progress": Family("gauge", "job", "Checkpoints that are under way."),
    "checkpoint_last_id": Family("gauge", "job", "The number of the last complete checkpoint."),
    "checkpoint_last_duration_seconds": Family("gauge", "job", "From its trigger to the last acknowledgement."),
    "checkpoint_last_phase_seconds": Family(
        "gauge", "job", "The longest of any subtask: align, sync (the stream stood still) or async.", ("phase",)
    ),
    "checkpoint_last_size_bytes": Family("gauge", "job", "What a restore from it has to read."),
    "checkpoint_last_uploaded_bytes": Family("gauge", "job", "What was written for it."),
    "checkpoint_last_state_bytes": Family("gauge", "job", "The size of an operator's state in it.", ("operator",)),
    "checkpoint_since_last_seconds": Family(
        "gauge", "job", "How long ago the last checkpoint was complete, or this run began."
    ),
    # A subtask, with all operators of its chain.
    "subtask_records_in_total": Family("counter", "subtask", "Records that the chain has taken, or read."),
    "subtask_records_out_total": Family("counter", "subtask", "Records that the chain has sent on, or written."),
    "subtask_bytes_in_total": Family("counter", "subtask", "Bytes that came over the exchange."),
    "subtask_bytes_out_total": Family("counter", "subtask", "Bytes that were packed for other subtasks."),
    "subtask_busy_seconds_total": Family("counter", "subtask", "Time spent working."),
    "subtask_back_pressured_seconds_total": Family("counter", "subtask", "Time spent waiting for the next stage."),
    "subtask_idle_seconds_total": Family("counter", "subtask", "Time spent waiting for something to do."),
    "subtask_in_flight_bytes": Family("gauge", "subtask", "Bytes sent that the receivers have not taken yet."),
    "subtask_in_flight_seconds": Family("gauge", "subtask", "How long they take at the rate of the last ten seconds."),
    "subtask_blocked_bytes": Family("gauge", "subtask", "Bytes that wait behind a barrier."),
    "subtask_stalled_seconds": Family("gauge", "subtask", "For how long its thread has not moved on, if that is long."),
    "worker_resident_memory_bytes": Family("gauge", "subtask", "Memory of its process that is in RAM."),
    "worker_cpu_seconds_total": Family("counter", "subtask", "Time of its process on a processor."),
    "worker_gc_collections_total": Family("counter", "subtask", "Garbage collections of its process."),
    "worker_gc_seconds_total": Family("counter", "subtask", "Time that they took."),
    # An operator in a subtask.
    "operator_records_in_total": Family("counter", "operator", "Records that it has taken, or read."),
    "operator_records_out_total": Family("counter", "operator", "Records that it has passed on, or written."),
    "operator_late_records_total": Family("counter", "operator", "Records that came too late and were dropped."),
    "operator_counter_total": Family("counter", "operator", "What else it counts, by name.", ("counter",)),
    "operator_watermark_timestamp_seconds": Family("gauge", "operator", "The last watermark that it has passed on."),
    "operator_watermark_lag_seconds": Family("gauge", "operator", "How far that is behind the clock."),
    "operator_event_time_lag_seconds": Family(
        "gauge", "operator", "How far the last record was behind the clock, where timestamps are assigned."
    ),
    "operator_state_keys": Family("gauge", "operator", "Keys of a state. May be an estimate.", ("state",)),
    "operator_timers": Family("gauge", "operator", "Timers that wait. May be an estimate."),
    "operator_source_records_behind": Family(
        "gauge", "operator", "Records of a split that are there and were not read yet.", ("split",)
    ),
    "operator_rocksdb_memory_bytes": Family("gauge", "operator", "Memory of RocksDB and of the caches before it."),
    "operator_rocksdb_disk_bytes": Family("gauge", "operator", "Files of RocksDB on the worker's disk."),
    "operator_rocksdb_rows": Family("gauge", "operator", "Rows in RocksDB, as it estimates."),
    "operator_rocksdb_rows_read_total": Family(
        "counter", "operator", "Rows looked up in RocksDB by key. What the caches before it have is not asked for."
    ),
    "operator_rocksdb_rows_written_total": Family("counter", "operator", "Rows written to RocksDB or removed from it."),
    "operator_rocksdb_slows_writes": Family(
        "gauge", "operator", "1 while RocksDB holds writes back because compaction is behind: the disk is too slow."
    ),
    "operator_keyed_records_per_second": Family(
        "gauge", "operator", "Records with a key per second, over the last half minute to minute."
    ),
    "operator_hottest_key_records_per_second": Family(
        "gauge", "operator", "Those of them that its most frequent key gets, as a sample shows. 0: none stands out."
    ),
    "operator_outage": Family("gauge", "operator", "1 while the system outside does not answer."),
    "samples_dropped": Family("gauge", "job", "Samples that were left out because there were too many."),
}
