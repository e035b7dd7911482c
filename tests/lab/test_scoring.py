"""Greedy search writes what the model says, and BLEU is sacrebleu's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU
from torch import nn

from pe_lab.encodings import Sinusoidal
from pe_lab.lab import tasks
from pe_lab.lab.data import number_pairs
from pe_lab.lab.scoring import bleu, exact_match, greedy
from pe_lab.lab.training import logits_of
from pe_lab.lab.vocabulary import BOS, EOS, PAD
from pe_lab.model import Transformer

STRINGS = st.text(alphabet="一二三十百", max_size=9)


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


@given(st.lists(st.tuples(STRINGS, STRINGS.filter(bool)), min_size=1, max_size=6))
def test_bleu_agrees_with_sacrebleu(pairs):
    written, right = [w for w, _ in pairs], [r for _, r in pairs]
    want = BLEU(tokenize="char").corpus_score(written, [right]).score
    # both sum a few logarithms in double precision
    assert bleu(written, right) == pytest.approx(want, abs=1e-9)


def test_bleu_of_a_perfect_and_of_a_hopeless_translation():
    assert bleu(["一百零二", "三十"], ["一百零二", "三十"]) == pytest.approx(100)
    assert bleu(["四四四四"], ["一百零二"]) == 0
