"""Decoding and scores of written sequences: greedy search, exact match, BLEU.

BLEU is that of Papineni et al. 2002 on characters, smoothed as sacrebleu does by
default (Post 2018), and held against sacrebleu by a test.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .tasks import Batch
from .training import logits_of
from .vocabulary import BOS, EOS


@torch.no_grad()
def greedy(model: nn.Module, source: Tensor, max_length: int) -> Tensor:
    """Write the likeliest next token again and again, until every row has an EOS.

    Args:
        model: an encoder-decoder.
        source: (B, S) ids, PAD at the end of the shorter rows.
        max_length: tokens to write at most, EOS included.

    Returns:
        (B, L) ids without BOS, L ≤ max_length; what follows an EOS is of no account.
    """
    was_training = model.training
    model.eval()
    written = torch.full((len(source), 1), BOS, device=source.device)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    while written.shape[1] <= max_length and not bool(ended.all()):
        logits = logits_of(model, Batch(written, written, source))
        following = logits[:, -1].argmax(dim=-1)
        written = torch.cat([written, following[:, None]], dim=1)
        ended |= following == EOS
    model.train(was_training)
    return written[:, 1:]


def exact_match(written: Sequence[str], right: Sequence[str]) -> float:
    """The share of strings that are right in every character."""
    _refuse_unequal(written, right)
    return sum(w == r for w, r in zip(written, right, strict=True)) / len(right)


def _refuse_unequal(written: Sequence[str], right: Sequence[str]) -> None:
    """Scores need one right answer for each written string."""
    if len(written) != len(right) or not right:
        raise ValueError(
            "scores need one right answer for each written string, got "
            f"{len(written)} written and {len(right)} right."
        )


def _ngrams(text: str, n: int) -> Counter[str]:
    """How often each run of n characters occurs."""
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))


def bleu(written: Sequence[str], right: Sequence[str], order: int = 4) -> float:
    r"""BLEU over a whole corpus, on characters, from 0 to 100.

    $100 \min(1, e^{1 - r/w}) \big(\prod_{n=1}^{4} p_n\big)^{1/4}$, where $p_n$ is the
    share of written n-grams that occur in the right answer, and $w$, $r$ the lengths.
    The k-th $p_n$ without a match counts as $1 / (2^k \cdot \text{written n-grams})$.

    Args:
        written: what the model wrote; spaces are ignored.
        right: one right answer for each.
        order: the longest n-gram.
    """
    _refuse_unequal(written, right)
    pairs = [
        (w.replace(" ", ""), r.replace(" ", ""))
        for w, r in zip(written, right, strict=True)
    ]
    logs, smoothing = 0.0, 1.0
    for n in range(1, order + 1):
        total = sum(max(0, len(w) - n + 1) for w, _ in pairs)
        found = sum((_ngrams(w, n) & _ngrams(r, n)).total() for w, r in pairs)
        if total == 0 or (n == 1 and found == 0):
            return 0.0
        if found == 0:
            smoothing *= 2
        logs += math.log((found or 1 / smoothing) / total)
    lengths = sum(len(w) for w, _ in pairs), sum(len(r) for _, r in pairs)
    brevity = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return 100 * brevity * math.exp(logs / order)
