"""What is compared in the MiniLM experiment is what the chapter says it is."""

from collections import Counter

import pytest
import torch

from pe_lab.lab import load, minilm
from pe_lab.lab.experiments import EXPERIMENTS
from pe_lab.lab.experiments import minilm as module
from pe_lab.lab.text import load_text
from pe_lab.lab.training import LOCAL

EXPERIMENT = EXPERIMENTS["minilm"]


def chance():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("pair", [module.DOG, *module.PAIRS], ids=lambda p: p[0])
def test_swapped_pairs_have_the_same_words_in_another_order(pair):
    a, b = (sentence.split() for sentence in pair)
    assert a != b and Counter(a) == Counter(b)


def test_sentences_are_whole_lines_of_some_length_drawn_once():
    """The first line may begin in the middle, where the training part ends."""
    cut = "half of a line that is long enough to be drawn\n" + "a b c d e f g h\n" * 3
    assert set(module.sentences_of(cut, 9, chance())) == {"a b c d e f g h"}
    text = load_text("topics").held_out
    sentences = module.sentences_of(text, 40, chance())
    lines = text.split("\n")
    assert len(set(sentences)) > 35 and set(sentences) <= set(lines[1:])
    assert all(8 <= len(sentence.split()) <= 60 for sentence in sentences)
    assert sentences == module.sentences_of(text, 40, chance())
    a, b = sentences[0], module.shuffled(sentences[0], chance())
    assert a != b and Counter(a.split()) == Counter(b.split())


def test_the_tables_are_what_their_names_say():
    table = minilm.position_table()
    made = {name: change(table, chance()) for name, change in module.TABLES.items()}
    assert torch.equal(made["intact"], table)
    assert not made["zeroed"].any()
    assert torch.equal(made["mean-row"], table.mean(0).repeat(512, 1))
    rows = made["permuted"]
    assert torch.equal(rows[128:], table[128:])
    assert not torch.equal(rows[:128], table[:128])
    assert torch.equal(rows[:128].sort(0).values, table[:128].sort(0).values)


def test_the_previous_share_is_of_the_token_before(monkeypatch):
    """A made-up head that looks one back, one ahead, and at itself: 0.5, 0.3, 0.2.

    The marks, and the first and the last word, look elsewhere: they are not asked.
    """
    length = 9
    weights = torch.zeros(1, 1, length, length)
    for back, share in ((1, 0.5), (-1, 0.3), (0, 0.2)):
        weights += share * torch.ones(length, length).tril(-back).triu(-back)
    weights[..., [0, 1, -2, -1], :] = 9.0
    monkeypatch.setattr(module, "attention_weights", lambda model, ids: [weights] * 2)

    class Toy:
        model = None

        def tokens(self, sentences):
            return torch.zeros(1, length).long(), None

    found = module.neighbours(Toy(), ["a", "b"])
    assert {name: p.values for name, p in found.items()} == {
        "attention/previous": [0.5, 0.5],
        "attention/next": [0.3, 0.3],
        "attention/self": [0.2, 0.2],
    }


def test_a_shipped_run_comes_out_again():
    """The swapped pairs need no sentences: all of seed 0, to float32's last digits."""
    if not all((minilm.folder() / name).exists() for name in minilm.FILES):
        pytest.skip("the checkpoint is not fetched: pe-lab fetch minilm")
    stored = load("minilm").of("intact")[0]
    config = EXPERIMENT.config("intact", "quick", "topics") | {"sentences": 2}
    found = EXPERIMENT.measure(config, 0, LOCAL)
    assert found.final["dog"] == pytest.approx(stored.final["dog"], abs=1e-5)
    wanted = pytest.approx(stored.profiles["pairs"].values, abs=1e-5)
    assert found.profiles["pairs"].values == wanted


def test_sentences_of_a_shipped_run_read_no_row_that_is_not_permuted():
    """Of the kind that is drawn, the longest: below 128 tokens, marks included."""
    if not all((minilm.folder() / name).exists() for name in minilm.FILES):
        pytest.skip("the checkpoint is not fetched: pe-lab fetch minilm")
    try:
        text = load_text("kjv").held_out
    except FileNotFoundError as error:
        pytest.skip(str(error))
    sentences = module.sentences_of(text, 10_000, chance())
    ids, _ = minilm.load().tokens(sentences)
    assert len(sentences) > 1000 and ids.shape[1] <= module.PERMUTED
