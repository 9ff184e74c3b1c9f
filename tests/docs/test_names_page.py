"""All public names on one page, to be read as a stranger would; docs/reference/names.md is compared with the code."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
public_names = importlib.import_module("public_names")

NAMES = [name for names in public_names.grouped().values() for name in names]
#: Words that say less than the noun they stand for.
VAGUE = re.compile(r"\b(what|whatever|whoever|somebody|nobody|told)\b", re.IGNORECASE)
#: A docstring names a thing or gives an order; it does not tell a story about "it".
THIRD_PERSON = re.compile(
    r"(Asks|Decides|Does|Fires|Gets|Gives|Holds|Keeps|Makes|Names|Never fires|Reads|Returns|Runs|Says|Stages|Takes"
    r"|Tells|The same|Where|Why|Writes)\b"
)


def test_the_names_page_is_that_of_the_code():
    assert public_names.PAGE.read_text() == public_names.page(), "run: python tools/public_names.py"


@pytest.mark.parametrize("module", ["moorline", *public_names.MODULES])
def test_every_public_name_is_in_one_group(module):
    grouped = Counter(name for name in NAMES if name.rpartition(".")[0] == module)
    assert [name for name, count in grouped.items() if count > 1] == []
    public = {f"{module}.{name}" for name in public_names.names_in(module)} - {"moorline.__version__"}
    assert set(grouped) == public


@pytest.mark.parametrize("name", NAMES)
def test_the_first_sentence_of_a_public_name_says_what_it_is(name):
    sentence = public_names.first_sentence(name)
    assert sentence.endswith((".", "?", ":")), "every public name has a docstring of its own"
    assert VAGUE.findall(sentence) == []
    assert not THIRD_PERSON.match(sentence), "begin with a noun phrase or an imperative"
    assert len(sentence) <= 200


@pytest.mark.parametrize("sentence", ["What a sink promises.", "The word that it was told.", "For whoever asks."])
def test_a_vague_sentence_would_be_found(sentence):
    assert VAGUE.search(sentence)
