"""A source that computes batches of columns: ``function(numbers)`` is the batch of the records with these numbers.

Numbers are dealt out to splits as for :func:`generate` (``connectors/generator.py``), whose reader this is, with
larger reads: a batch of columns costs little for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.api.sources import SourceContext, SourceReader
from moorline.connectors.generator import Generator, GeneratorReader
from moorline.errors import InvalidOutput
from moorline.model.columns import ColumnBatch
from moorline.model.options import checks_options


@checks_options()
def generate_batches(
    function: Callable[[npt.NDArray[np.int64]], pa.RecordBatch],
    *,
    count: int | None = None,
    splits: int | None = None,
    rate: float | None = None,
) -> Generator[dict[str, Any]]:
    """Generate batches of columns: ``function`` is given an array of numbers and returns a row for each of them.

    Otherwise as :func:`generate`. Declare the columns with ``with_schema`` after it: batches that have them are passed
    on as they are.

    >>> import moorline as mo
    >>> def visits(numbers):
    ...     return pa.RecordBatch.from_pydict({"user": numbers % 3, "visit": numbers})
    >>> reader = mo.generate_batches(visits, count=4, splits=1).open(
    ...     SourceContext(uid="visits", subtask=0, parallelism=1, attempt=1))
    >>> list(reader.read(10))[-1]
    {'user': 0, 'visit': 3}
    """
    return BatchGenerator(function, count=count, splits=splits, rate=rate)  # type: ignore[arg-type]


class BatchGenerator(Generator[dict[str, Any]]):
    """See :func:`generate_batches`."""

    def open(self, ctx: SourceContext) -> SourceReader[dict[str, Any]]:
        """A reader of those splits that are this subtask's."""
        self._check(ctx)
        return _BatchReader(self, ctx)


class _BatchReader(GeneratorReader):
    def _made(self, numbers: range) -> Any:
        function: Any = self._function
        made = function(np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64))
        if not isinstance(made, pa.RecordBatch) or made.num_rows != len(numbers):
            had = f"{made.num_rows} rows" if isinstance(made, pa.RecordBatch) else f"a {type(made).__qualname__}"
            advice = f"Return a pyarrow.RecordBatch with a row for each of {len(numbers)} numbers."
            raise InvalidOutput(self._uid, "the function of generate_batches", had, advice)
        return ColumnBatch(made)
