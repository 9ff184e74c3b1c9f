"""Run a user's job under faults, many times, and say which seed breaks it: :func:`simulate`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from moorline.errors import InvalidArgument
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.job import FunctionFailed, JobBuilder, JobSimulation
from moorline.testing.simulation.pace import SimulatedPace
from moorline.testing.simulation.results import Results, difference

#: Nothing goes wrong, and nothing is asked for.
CALM = Faults(
    worker_death=0,
    driver_death=0,
    death_in_upload=0,
    storage_error=0,
    lost_notification=0,
    repeated_order=0,
    zombie=0,
    damage=0,
    rescale=0,
    savepoint=0,
    stop=0,
    sweep=0,
    key_groups=0,
    autoscale=0,
)

_BY_ITSELF = """\
It differs without any fault, too, so the job does not always do the same with the same input. Typical causes: the \
clock or dice in a function, a global variable that outlives a run, a source that cannot be read again, or results \
that depend on which of two records from different splits comes first. Where such a difference is right, say by \
check=... what has to hold instead."""
_BY_FAULTS = """\
Without faults the same seed gives the expected result. Typical causes: something is kept outside of declared state \
(an attribute of self, a global variable), or a source does not go on from ctx.positions."""


@dataclass(frozen=True)
class SimulationReport:
    """The sum of all runs, none of which went wrong."""

    runs: int = 0
    #: How often each fault was injected, by its name.
    faults: Counter[str] = field(default_factory=Counter)
    checkpoints: int = 0
    #: How often a run went on from a checkpoint.
    restored: int = 0

    def __str__(self) -> str:
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()) if count) or "no faults"
        return f"{self.runs} runs: {self.checkpoints} checkpoints, {self.restored} of them restored; {faults}"


class SimulationFailed(AssertionError):
    """A job has other output under faults than without them."""

    def __init__(self, job: str, seed: int, what: str, story: str, advice: str, again: str) -> None:
        super().__init__(job, seed, what, story, advice, again)
        self.job, self.seed, self.what, self.story, self.advice, self.again = job, seed, what, story, advice, again

    def __str__(self) -> str:
        lines = [f"job {self.job!r}, seed {self.seed}: {self.what}", self.story, self.advice]
        return "\n".join([*filter(None, lines), f"Run it again: {self.again}"])


def simulate(
    job_builder: JobBuilder,
    *,
    seeds: Iterable[int] = range(50),
    check: Callable[[Results], object] | None = None,
    faults: Faults | None = None,
    rescale: bool = True,
    rocksdb: float = 0.05,
) -> SimulationReport:
    """Run a job under faults, once for every seed, and compare its output with a run without faults.

    ``job_builder()`` returns a new job each time, with sources that end. A seed decides in which order things happen
    and what goes wrong: workers and drivers die, some of them live on as zombies, storage fails, files are damaged,
    notifications get lost, and the job is rescaled, stopped and started again (``rescale=False``: always at its own
    parallelism). No Spark is needed. Sinks other than ``mo.collect`` are exchanged: nothing is written outside.

    Results are compared as multisets, sink by sink. ``check(results)`` is called instead, if given, with the records
    of each sink by the name of its ``collect`` or by its uid; it raises or returns False if something is wrong. The
    share ``rocksdb`` of the runs keeps keyed state in RocksDB. Raises :class:`SimulationFailed` at the first seed
    that goes wrong.

    >>> import moorline as mo
    >>> def build():
    ...     job = mo.Job("double", parallelism=2)
    ...     numbers = job.source(mo.from_items(range(30)), uid="numbers")
    ...     numbers.map(lambda n: 2 * n, uid="double").sink(mo.collect("out"), uid="out")
    ...     return job
    >>> simulate(build, seeds=range(5)).runs
    5
    """
    return _Simulations(job_builder, check, faults, rescale, rocksdb).run(list(seeds))


class _Simulations:
    """All runs of one job."""

    def __init__(
        self,
        builder: JobBuilder,
        check: Callable[[Results], object] | None,
        faults: Faults | None,
        rescale: bool,
        rocksdb: float,
    ) -> None:
        self._builder, self._check, self._rescale, self._rocksdb = builder, check, rescale, rocksdb
        self._wanted_faults = faults
        self._job = ""

    def run(self, seeds: list[int]) -> SimulationReport:
        expected, records = self._reference()
        # A second calm run, at the pace of the others: its length says how often something may go wrong.
        calm = self._simulation(0, CALM, SimulatedPace.for_input(0, records), 0)
        self._run(calm, expected, without_faults=True)
        faults = self._wanted_faults or usual_faults(calm.steps)
        report = SimulationReport()
        for seed in seeds:
            pace = SimulatedPace.for_input(seed, records)
            simulation = self._simulation(seed, faults, pace, 10 * calm.steps, max_steps=100 * calm.steps)
            self._run(simulation, expected)
            report = SimulationReport(
                report.runs + 1,
                report.faults + simulation.injected,
                report.checkpoints + simulation.tally.checkpoints,
                report.restored + len(simulation.tally.restored),
            )
        return report

    def _reference(self) -> tuple[Results, int]:
        simulation = self._simulation(0, CALM, SimulatedPace(0), 0)
        self._run(simulation, None, without_faults=True)
        if self._check is None and not any(simulation.results.values()):
            raise InvalidArgument(
                "job_builder", self._builder, "No sink of its job gets a record: nothing is compared."
            )
        return simulation.results, simulation.records_read

    def _simulation(
        self, seed: int, faults: Faults, pace: SimulatedPace, fault_steps: int, max_steps: int = 0
    ) -> JobSimulation:
        simulation = JobSimulation(
            seed,
            self._builder,
            pace,
            faults=faults,
            fault_steps=fault_steps,
            interval_ms=40,
            rescale=self._rescale,
            rocksdb=0 if faults is CALM else self._rocksdb,
        )
        simulation.max_steps = max(simulation.max_steps, max_steps)
        self._job = simulation.job_name
        return simulation

    def _run(self, simulation: JobSimulation, expected: Results | None, without_faults: bool = False) -> None:
        what = self._outcome(simulation, expected)
        if not what:
            return
        seed = simulation.seed
        again = f"simulate({getattr(self._builder, '__name__', 'job_builder')}, seeds=[{seed}])"
        story, advice = "", _BY_ITSELF if expected is not None else ""
        if not without_faults:
            faults = ", ".join(f"{n} x {name}" for name, n in sorted(simulation.injected.items()) if n)
            story = f"It went through {faults or 'no fault'}, and restored the checkpoints {simulation.tally.restored}."
            calm = self._simulation(seed, CALM, simulation.pace, 0)
            advice = _BY_ITSELF if self._outcome(calm, expected) else _BY_FAULTS
        else:
            what = f"without any fault: {what}"
        raise SimulationFailed(self._job, seed, what, story, advice, again)

    def _outcome(self, simulation: JobSimulation, expected: Results | None) -> str:
        """The failure of a run; empty if there is none."""
        try:
            simulation.run()
        except FunctionFailed as failed:
            return f"a function has raised: {failed}"
        except AssertionError as wrong:
            return str(wrong)
        if self._check is not None:
            try:
                is_right = self._check(simulation.results)
            except AssertionError as wrong:
                return f"check() says: {wrong}" if str(wrong) else "check() has failed"
            return "check() says no" if is_right is False else ""
        return difference(expected, simulation.results) if expected is not None else ""


def usual_faults(steps: int) -> Faults:
    """Some of everything in a run of so many steps, with enough quiet in between for checkpoints to complete."""
    often = 1 / max(steps, 250)
    return Faults(
        worker_death=3 * often,
        driver_death=often,
        rescale=0.7 * often,
        savepoint=0.5 * often,
        stop=0.5 * often,
        death_in_upload=0.005,
        key_groups=0,
    )
