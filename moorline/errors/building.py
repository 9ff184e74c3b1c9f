"""For the author, before anything runs: the job cannot be as it was written."""

from __future__ import annotations

from dataclasses import dataclass

from moorline.errors.common import MoorlineError


class JobError(MoorlineError):
    """The job cannot be built as written."""

    can_pass = False


@dataclass(eq=False)
class DuplicateUid(JobError):
    """Two operators of a job share a uid."""

    uid: str

    def __str__(self) -> str:
        return (
            f"two operators have the uid {self.uid!r}. State is found again by uid, "
            f"so each operator needs its own: change one of them."
        )


@dataclass(eq=False)
class ParallelismTooHigh(JobError):
    """An operator wants more subtasks than there are key groups."""

    uid: str
    parallelism: int
    max_parallelism: int

    def __str__(self) -> str:
        return (
            f"operator {self.uid!r} has parallelism {self.parallelism}, above the job's max parallelism "
            f"{self.max_parallelism}. Lower it, or build the job with a higher max_parallelism."
        )


@dataclass(eq=False)
class InvalidArgument(JobError):
    """A value given to the API is of no use there."""

    what: str
    had: object
    advice: str

    def __str__(self) -> str:
        return f"{self.what}: got {self.had!r}. {self.advice}"


@dataclass(eq=False)
class UnknownOption(JobError, TypeError):
    """A keyword that is not among those that are taken."""

    where: str
    option: str
    known: tuple[str, ...]
    #: The one that may be meant.
    similar: str = ""

    def __str__(self) -> str:
        meant = f" Did you mean {self.similar!r}?" if self.similar else ""
        return f"{self.where} has no option {self.option!r}.{meant} It takes {', '.join(self.known)}."


@dataclass(eq=False)
class UnknownName(JobError, AttributeError):
    """A name that is not there, though it may be in PyFlink or PySpark."""

    where: str
    attribute: str
    #: What is written here instead.
    ours: str = ""
    #: The one that may be meant.
    similar: str = ""

    def __str__(self) -> str:
        advice = f" Write {self.ours}." if self.ours else f" Did you mean {self.similar!r}?" if self.similar else ""
        return f"{self.where} has no {self.attribute!r}.{advice}"


@dataclass(eq=False)
class StateMisused(JobError, TypeError):
    """A state was taken for the value that is in it, or made where it cannot be found."""

    where: str
    state: str
    cause: str
    advice: str

    def __str__(self) -> str:
        return f"{self.where}: state {self.state!r} {self.cause}. {self.advice}"


@dataclass(eq=False)
class MethodMissing(JobError):
    """A function has not the method that does its work."""

    where: str
    function: str
    base: str
    method: str
    #: A method of the function's own that may be meant.
    similar: str = ""

    def __str__(self) -> str:
        advice = f"Is {self.similar!r} meant? Rename it." if self.similar else f"Write {self.method}."
        return f"{self.where}: {self.function} is a {self.base} without {self.method!r}. {advice}"


@dataclass(eq=False)
class KeyedStateWithoutKey(JobError):
    """A function with keyed state sits on a stream that has no key."""

    uid: str
    states: tuple[str, ...]

    def __str__(self) -> str:
        what = f"keyed state ({', '.join(self.states)})" if self.states else "a key"
        return f"operator {self.uid!r} needs {what}, but its input is not keyed. Put .key_by(...) directly before it."


@dataclass(eq=False)
class UnconnectedStream(JobError):
    """The output of an operator goes nowhere."""

    uid: str

    def __str__(self) -> str:
        return (
            f"nothing reads the output of operator {self.uid!r}. End it with .sink(...), "
            f"or with .sink(mo.discard()) if its output is not wanted."
        )


@dataclass(eq=False)
class InvalidLoop(JobError):
    """A loop that cannot be run as it was written."""

    head: str
    cause: str
    advice: str

    def __str__(self) -> str:
        which = f"the loop of operator {self.head!r}" if self.head else "a loop"
        return f"{which} cannot be: {self.cause}. Please {self.advice}."


@dataclass(eq=False)
class NothingToRun(JobError):
    """A job without a source."""

    job: str

    def __str__(self) -> str:
        return f"job {self.job!r} has no source. Start with job.source(...)."


@dataclass(eq=False)
class StartedWhileLoading(JobError):
    """A script starts a job while the command line only looks for the job in it."""

    script: str
    call: str

    def __str__(self) -> str:
        return (
            f"{self.script} calls {self.call} while it is loaded, and loading a script must not start anything. "
            f'Put the call, and what uses its result, under if __name__ == "__main__": and leave the job itself '
            f"outside, as a variable called job or a function called build that returns it."
        )


@dataclass(eq=False)
class EndUnusable(JobError):
    """A source or a sink has found, before the start, that it cannot work."""

    kind: str
    uid: str
    cause: str

    def __str__(self) -> str:
        return f"{self.kind} {self.uid!r} cannot be used: {self.cause}. Nothing was started; mend it and start again."


@dataclass(eq=False)
class FunctionNotShippable(JobError):
    """A function cannot travel to the workers."""

    uid: str
    cause: str

    def __str__(self) -> str:
        return (
            f"the function of operator {self.uid!r} cannot be sent to the workers: {self.cause}. "
            f"Open files, locks and connections in open(), not when the function is made."
        )
