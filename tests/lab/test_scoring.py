"""Greedy search writes what the model says, and BLEU counts characters."""

import math

import pytest
import torch
from torch import nn

from pe_lab.encodings import Sinusoidal
from pe_lab.lab import tasks
from pe_lab.lab.data import number_pairs
from pe_lab.lab.scoring import bleu, exact_match, greedy, right_shares
from pe_lab.lab.tasks import IGNORE
from pe_lab.lab.training import logits_of
from pe_lab.lab.vocabulary import BOS, EOS, PAD
from pe_lab.model import Transformer


class Copier(nn.Module):
    """Writes its source: after L tokens the likeliest next one is source[L - 1]."""

    def forward(self, ids, *, source, source_mask):
        assert torch.equal(source_mask, source != PAD)
        assert (ids[:, 0] == BOS).all()
        place = torch.arange(ids.shape[1]).clamp(max=source.shape[1] - 1)
        return nn.functional.one_hot(source[:, place], 10).float()


def test_greedy_writes_the_likeliest_tokens_until_every_row_has_ended():
    source = torch.tensor([[5, 6, EOS, PAD, PAD], [7, 8, 9, 4, EOS]])
    written = greedy(Copier(), source, max_length=9)
    assert written.tolist() == source.tolist()  # five steps: row 1 ends last


def test_greedy_never_writes_more_than_it_may():
    source = torch.full((2, 3), 5)
    assert greedy(Copier(), source, max_length=4).tolist() == [[5] * 4] * 2


def test_greedy_agrees_with_one_pass_over_what_it_wrote():
    data = number_pairs(5_000)
    sizes = (len(data.characters), 32, 2, 2)
    options = {"kind": "encoder-decoder", "source_vocab_size": len(data.words)}
    torch.manual_seed(0)
    model = Transformer(*sizes, encoding=Sinusoidal(32), dropout=0.3, **options)
    source = tasks.number_batch(list(data.train[:20]), data).source
    written = greedy(model, source, max_length=8)
    assert model.training  # as it was
    inputs = torch.cat([torch.full((20, 1), BOS), written[:, :-1]], dim=1)
    with torch.no_grad():
        logits = logits_of(model.eval(), tasks.Batch(inputs, inputs, source))
    assert torch.equal(logits.argmax(dim=-1), written)


def test_exact_match_counts_whole_strings():
    assert exact_match(["一", "二三", ""], ["一", "二", ""]) == pytest.approx(2 / 3)


def test_scores_need_one_answer_for_each_string():
    for score in (exact_match, bleu):
        with pytest.raises(ValueError, match="got 1 written and 2 right"):
            score(["a"], ["a", "b"])
        with pytest.raises(ValueError, match="got 0 written and 0 right"):
            score([], [])


def test_bleu_counts_characters_by_hand():
    """One string: n-gram hits 4/5, 3/4, 2/3, 1/2 and no brevity penalty."""
    precisions = [4 / 5, 3 / 4, 2 / 3, 1 / 2]
    want = 100 * math.prod(precisions) ** 0.25
    assert bleu(["一百零二五"], ["一百零二三"]) == pytest.approx(want)
    assert bleu(["一 百零 二五"], ["一百零二三"]) == pytest.approx(want)  # spaces


def test_a_short_answer_is_penalised_once():
    """Four of six characters, all right: e^{1 − 6/4}."""
    want = 100 * math.exp(1 - 6 / 4)
    assert bleu(["一百零二"], ["一百零二三四"]) == pytest.approx(want)


def test_bleu_of_a_perfect_and_of_a_hopeless_translation():
    assert bleu(["一百零二", "三十"], ["一百零二", "三十"]) == pytest.approx(100)
    assert bleu(["四四四四"], ["一百零二"]) == 0


def test_right_shares_count_asked_slots_and_whole_rows():
    """The model says its input: row 0 is right, row 1 in one of two, row 2 in none."""
    inputs = torch.tensor([[1, 2, 0], [1, 2, 3], [1, 2, 3]])
    targets = torch.tensor([[1, 2, IGNORE], [1, IGNORE, 2], [IGNORE, 0, IGNORE]])
    says_input = nn.Embedding.from_pretrained(torch.eye(4)).train()
    exact, accuracy = right_shares(says_input, tasks.Batch(inputs, targets))
    assert (exact, accuracy) == (pytest.approx(1 / 3), pytest.approx(3 / 5))
    assert says_input.training
