"""The address of an Iceberg table: its catalog, and its files.

A catalog knows which metadata file of a table is the newest one, and replaces it in one step if it still is the one
that a writer has started from. That step is all that a commit rests on.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow.fs import FSSpecHandler, PyFileSystem
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import PyArrowFileIO, _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from moorline.connectors.iceberg.partitions import Partition
from moorline.connectors.tables.staging import StagingArea
from moorline.errors import InvalidArgument, StorageError

_SECRET = re.compile(r"secret|password|token|credential|key|account", re.IGNORECASE)
_USER_INFO = re.compile(r"://([^/@\s]+)@")
#: Errors of a catalog or of the storage that can pass by themselves.
_PASSING = (
    exceptions.CommitFailedException,
    exceptions.CommitStateUnknownException,
    exceptions.ServiceUnavailableError,
    exceptions.ServerError,
    exceptions.TooManyRequestsError,
    exceptions.AuthorizationExpiredError,
    exceptions.WaitingForLockException,
    OSError,
)
_LASTING = (FileNotFoundError, PermissionError, NotADirectoryError)


@dataclass(frozen=True)
class TableAddress:
    """The name of a table and all that is needed to open its catalog, in whatever process."""

    table: str
    catalog: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # there may be passwords in them

    @classmethod
    def resolve(cls, table: str, catalog: str, options: dict[str, str]) -> TableAddress:
        """With the settings of this machine's configuration, which workers need not have."""
        configured = Config().get_catalog_config(catalog) or {}
        return cls(table, catalog, {**{name: str(value) for name, value in configured.items()}, **options})

    def __str__(self) -> str:
        return f"{self.catalog}.{self.table}"

    @contextlib.contextmanager
    def opened(self) -> Iterator[Catalog]:
        """The catalog. Raises InvalidArgument if there can be none with these options."""
        try:
            catalog = load_catalog(self.catalog, **self.options)
        except (ValueError, exceptions.NotInstalledError, KeyError) as error:
            # The library repeats all options in its message.
            shown = "; ".join(sorted(name for name in self.options)) or "none"
            cause = self.redacted(str(error)).partition("with the following properties")[0]
            advice = f"The catalog cannot be opened: {cause.strip()}. Options are given for: {shown}."
            raise InvalidArgument("catalog", self.catalog, advice) from None
        try:
            yield catalog
        finally:
            with contextlib.suppress(AttributeError, NotImplementedError):
                catalog.close()

    def load(self) -> Table:
        """The table as it is now. Raises ``NoSuchTableError``."""
        with self.opened() as catalog:
            return catalog.load_table(self.table)

    def find(self) -> Table | None:
        """The table as it is now, if there is one."""
        try:
            return self.load()
        except exceptions.NoSuchTableError:
            return None

    def create(self, schema: pa.Schema, partitions: list[Partition]) -> None:
        """Make an empty table, unless there is one."""
        with self.opened() as catalog:
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            try:
                with catalog.create_table_transaction(self.table, schema) as made, made.update_spec() as spec:
                    for partition in partitions:
                        spec.add_field(partition.column, partition.transform, partition.name)
            except exceptions.TableAlreadyExistsError:
                return  # made by another driver at this moment; it is compared with what is declared

    def redacted(self, text: str) -> str:
        """A message of a library without what is secret in the options."""
        for name, value in self.options.items():
            if _SECRET.search(name) and len(str(value)) > 3:
                text = text.replace(str(value), "***")
        return _USER_INFO.sub("://***@", text)

    def unusable(self, operation: str, error: Exception) -> StorageError:
        """The error of a table that cannot be used, in the words of the library."""
        cause = self.redacted(f"{type(error).__name__}: {error}")
        return StorageError(str(self), operation, cause, can_pass=can_pass(error))


def can_pass(error: Exception) -> bool:
    """Another writer was quicker, or catalog or storage are away for a moment. What is refused is refused again."""
    if isinstance(error, _PASSING):
        return not isinstance(error, _LASTING)
    # SQLAlchemy need not be installed.
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    return bool(
        names & {"sqlalchemy.exc.OperationalError", "sqlalchemy.exc.InterfaceError", "sqlalchemy.exc.TimeoutError"}
    )


class TableFiles(StagingArea):
    """The folder that a table's data files lie in."""

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self.location: str = table.location_provider().data_path
        self._scheme: str
        self._host: str
        self._path: str
        self._scheme, self._host, self._path = PyArrowFileIO.parse_location(self.location)

    @property
    def folder(self) -> str | None:
        return self._path if self._scheme == "file" else None

    @property
    def root(self) -> str:
        return self._path

    def filesystem(self) -> Any:
        if isinstance(self._io, PyArrowFileIO):
            return self._io.fs_by_scheme(self._scheme, self._host)
        return PyFileSystem(FSSpecHandler(self._io.get_fs(self._scheme)))


def arrow_schema(table: Table) -> pa.Schema:
    """The schema of a table, for records to be converted to: with the ids of its columns, which its files must have."""
    return schema_to_pyarrow(table.schema(), include_field_ids=True)


def as_stored(type: pa.DataType) -> pa.DataType:
    """A type as an Iceberg table has it: it knows fewer widths and units.

    >>> str(as_stored(pa.string())), str(as_stored(pa.int16()))
    ('large_string', 'int32')
    """
    try:
        converted = _pyarrow_to_schema_without_ids(pa.schema([("x", type)]), downcast_ns_timestamp_to_us=False)
    except Exception as error:  # TypeError, UnsupportedPyArrowTypeException, ...
        raise InvalidArgument("schema", str(type), f"An Iceberg table cannot have it: {error}.") from None
    return schema_to_pyarrow(converted).field("x").type
