"""The first sentence of a docstring names a thing, gives an order or asks: it does not begin amid a story."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Words of a sentence that leaves out its noun. A question may begin with any of them.
BEGINS = re.compile(r"(What|Whatever|Who|Whoever|Where|Which|When|Somebody|Nobody|Why|How)\b")
#: Words that stand for somebody whom the sentence does not name.
NAMELESS = re.compile(r"\b(whoever|somebody|nobody|told)\b", re.IGNORECASE)


def first_sentences(text: str) -> Iterator[str]:
    """The first sentence of every docstring of a module, up to the first stop or colon."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            paragraph = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
            yield re.split(r"(?<=[.?:;]) ", paragraph)[0]


def says_no_noun(sentence: str) -> bool:
    begins = BEGINS.match(sentence) is not None and not sentence.endswith("?")
    return begins or NAMELESS.search(sentence) is not None


def test_the_first_sentence_names_a_thing_or_gives_an_order():
    found = {
        str(path.relative_to(ROOT)): [
            sentence for sentence in first_sentences(path.read_text()) if says_no_noun(sentence)
        ]
        for path in (ROOT / "moorline").rglob("*.py")
    }
    assert {path: sentences for path, sentences in found.items() if sentences} == {}


@pytest.mark.parametrize(
    ("sentence", "is_wrong"),
    [
        ("What a sink promises.", True),
        ("The word that it was told.", True),
        ("Where are the files of a job?", False),
        ("The promise of a sink.", False),
    ],
)
def test_a_sentence_without_a_noun_would_be_found(sentence: str, is_wrong: bool):
    (first,) = first_sentences(f'"""{sentence} And more."""')
    assert says_no_noun(first) == is_wrong
