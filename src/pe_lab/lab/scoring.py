"""Decoding and scores of written sequences: greedy search, exact match, BLEU.

BLEU (Papineni et al. 2002) is computed by sacrebleu (Post 2018), on characters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .data import need
from .tasks import IGNORE, Batch
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

    Example:
        >>> model = pe_lab.Transformer(7, 8, 2, 1, kind="encoder-decoder")
        >>> source = torch.tensor([[3, 4, 2], [5, 2, 0]])
        >>> written = pe_lab.lab.scoring.greedy(model, source, max_length=4)
        >>> len(written), written.shape[1] <= 4
        (2, True)
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


@torch.no_grad()
def right_shares(model: nn.Module, batch: Batch) -> tuple[float, float]:
    """How often the likeliest token is the right one, given the right ones before it.

    A row that is right in every slot is what greedy search writes, and one that is not
    is not: its first mistake would be the same. So the first share is that of greedy
    search, at the price of one pass.

    Args:
        model: called as `logits_of` does; stays as it is.
        batch: what is read, and what is right.

    Returns:
        the share of rows that are right in every slot that is asked, and the share of
        such slots that are right.

    Example:
        >>> always_a = torch.nn.Embedding.from_pretrained(torch.eye(3)[[0, 0, 0]])
        >>> batch = pe_lab.lab.tasks.fixed_abc().draw(2, torch.Generator())
        >>> exact, accuracy = pe_lab.lab.scoring.right_shares(always_a, batch)
        >>> exact, round(accuracy, 4)
        (0.0, 0.3333)
    """
    was_training = model.training
    model.eval()
    right = logits_of(model, batch).argmax(dim=-1) == batch.targets
    model.train(was_training)
    asked = batch.targets != IGNORE
    exact = float((right | ~asked).all(dim=1).double().mean())
    return exact, float(right[asked].double().mean())


def exact_match(written: Sequence[str], right: Sequence[str]) -> float:
    """The share of strings that are right in every character.

    Args:
        written: what the model wrote.
        right: one right answer for each.

    Returns:
        a number from 0 to 1.

    Raises:
        ValueError: unless there is one right answer for each written string.

    Example:
        >>> pe_lab.lab.scoring.exact_match(["四十二", "二十四"], ["四十二", "四十二"])
        0.5
    """
    _refuse_unequal(written, right)
    return sum(w == r for w, r in zip(written, right, strict=True)) / len(right)


def _refuse_unequal(written: Sequence[str], right: Sequence[str]) -> None:
    """Scores need one right answer for each written string."""
    if len(written) != len(right) or not right:
        raise ValueError(
            "scores need one right answer for each written string, got "
            f"{len(written)} written and {len(right)} right."
        )


def bleu(written: Sequence[str], right: Sequence[str]) -> float:
    """BLEU over a whole corpus, on characters, by sacrebleu.

    Args:
        written: what the model wrote; spaces are ignored.
        right: one right answer for each.

    Returns:
        a score from 0 to 100.

    Raises:
        ImportError: if sacrebleu is missing.
        ValueError: unless there is one right answer for each written string.
    Source: Papineni et al. 2002; Post 2018.

    Example:
        >>> round(pe_lab.lab.scoring.bleu(["二百零六"], ["二百零六"]), 4)
        100.0
    """
    _refuse_unequal(written, right)
    score = need("sacrebleu").corpus_bleu(written, [right], tokenize="char")
    return float(score.score)
