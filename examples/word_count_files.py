"""Count words: text files in, JSON lines out, with checkpoints. Each output line is there exactly once.

State: a count per word. The output has a line for every word read, with the count so far; the highest is the total.
"""

import json
import tempfile
from pathlib import Path

import moorline as mo

RHYME = "a boat at the pier\nthe boat is moored\nthe line is long\nand the line is good\n"


class Count(mo.KeyedProcessFunction):
    """Emits the word and how often it was seen."""

    seen = mo.ValueState(int, default=0)

    def process_element(self, word, ctx):
        self.seen.update(self.seen.value() + 1)
        yield {"word": word, "count": self.seen.value()}


def build(texts, counts) -> mo.Job:
    """``texts``: a folder with .txt files. ``counts``: the folder for the output."""
    job = mo.Job("word-count", parallelism=2)
    (
        job.source(mo.read_files(texts, format="text"), uid="lines")
        .flat_map(str.split, uid="words")
        .key_by(lambda word: word)
        .process(Count(), uid="count")
        .sink(mo.write_files(counts, format="jsonl"), uid="counts")
    )
    return job


def totals(counts) -> dict[str, int]:
    """The highest count of each word in the published files."""
    found: dict[str, int] = {}
    for file in Path(counts).glob("part-*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            found[line["word"]] = max(line["count"], found.get(line["word"], 0))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "in" / "rhyme.txt").write_text(RHYME)
        checkpoints = mo.Checkpoints(str(folder / "checkpoints"), interval="1s")
        mo.run(build(folder / "in", folder / "out"), checkpoints=checkpoints)
        for word, count in sorted(totals(folder / "out").items(), key=lambda item: (-item[1], item[0])):
            print(f"{count:3}  {word}")
