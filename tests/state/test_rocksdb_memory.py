"""State that is several times larger than the memory budget is written and read, and memory stays in proportion."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BUDGET = 24 << 20
#: The size of a value, and how many there are: five times the budget.
SIZES = {"small values": (1_000, 120_000), "large values": (100_000, 1_200)}

PROGRAM = """
import random, re, sys
from pathlib import Path
from moorline.api.state.descriptors import (MapStateDescriptor, ValueStateDescriptor)
from moorline.model.key_groups import KeyGroupRange
from moorline.state.heap.backend import HeapBackend
from moorline.state.rocksdb.backend import RocksDbBackend

kind, folder, budget, size, keys = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])

def rss():
    # The most this program has had. (ru_maxrss begins with what its parent had.)
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

if kind == "heap":
    backend = HeapBackend("op", 128)
else:
    backend = RocksDbBackend("op", 128, key_groups=KeyGroupRange(0, 128), folder=folder, memory_budget=budget)
value = backend.bind(ValueStateDescriptor("value", bytes))
mapped = backend.bind(MapStateDescriptor("map", int, bytes))
chance = random.Random(1)
before = rss()
most = 0
for first in range(0, keys, 1000):
    batch = range(first, min(first + 1000, keys))
    backend.prefetch(batch)
    for key in batch:
        backend.current.key = key
        if key % 2:
            value.update(chance.randbytes(size))
        else:
            backend.current.key = 0  # one large map
            mapped.put(key, chance.randbytes(size))
    backend.flush()
    if kind != "heap":
        most = max(most, backend.memory_bytes())
found = 0
for _ in range(10):
    batch = [chance.randrange(keys) for _ in range(1000)]
    backend.prefetch(batch)
    for key in batch:
        backend.current.key = key if key % 2 else 0
        found += len(value.value() if key % 2 else mapped.get(key)) == size
    backend.flush()
print(found, rss() - before, most)
backend.close()
"""


def run(kind, folder, size, keys):
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), kind, str(folder), *map(str, (BUDGET, size, keys))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return map(int, done.stdout.split())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux how much memory was used")
@pytest.mark.parametrize(("size", "keys"), SIZES.values(), ids=SIZES)
def test_memory_follows_the_budget_and_not_the_state(size, keys, tmp_path):
    found, growth, most = run("rocksdb", tmp_path / "state", size, keys)
    assert found == 10_000
    assert growth < 3 * BUDGET
    assert most < 1.5 * BUDGET
    # The same on the heap shows that the measure can tell the difference.
    _, on_the_heap, _ = run("heap", tmp_path / "unused", size, keys)
    assert on_the_heap > 4 * BUDGET
