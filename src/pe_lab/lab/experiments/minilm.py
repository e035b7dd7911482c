"""What does a trained encoder of sentences lose with its position table?

MiniLM as it was released, with its table and with three others in its place; nothing is
trained. Sentences are compared with themselves in another order of words, and attention
is asked how much of it goes to the neighbours. A seed draws the sentences, the orders
and the permutation of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from pe_lab.lab import minilm
from pe_lab.lab.extrapolation import attention_weights
from pe_lab.lab.results import Profile
from pe_lab.lab.text import load_text
from pe_lab.lab.training import Session

from .base import Experiment, Measured

COUNT = {"quick": 8, "full": 100}
WORDS = range(8, 61)  # of a sentence; 60 of them are fewer than 128 tokens
PERMUTED = 128  # rows that sentences of up to so many tokens read
DOG = ("dog bites man", "man bites dog")
PAIRS = (
    ("the cat chased the mouse", "the mouse chased the cat"),
    ("the teacher praised the student", "the student praised the teacher"),
    ("she sold the house and bought the car", "she bought the house and sold the car"),
    ("the train left before the bus arrived", "the bus left before the train arrived"),
    ("Brazil beat France in the final", "France beat Brazil in the final"),
    ("three is more than two", "two is more than three"),
    ("only she told him that she was ill", "she told him that only she was ill"),
    ("I did not say he was guilty", "I did say he was not guilty"),
)

Change = Callable[[Tensor, Generator], Tensor]  # a table, and chance → another table


def permuted(table: Tensor, generator: Generator) -> Tensor:
    """The first rows in another order."""
    order = torch.randperm(PERMUTED, generator=generator)
    return torch.cat((table[:PERMUTED][order], table[PERMUTED:]))


TABLES: dict[str, Change] = {
    "intact": lambda table, chance: table,
    "zeroed": lambda table, chance: torch.zeros_like(table),
    "mean-row": lambda table, chance: table.mean(0, keepdim=True).expand_as(table),
    "permuted": permuted,
}


def config(variant: str, size: str, text: str) -> dict[str, Any]:
    """All that decides the outcome of a variant but the seed; nothing is trained."""
    source = load_text(text)
    return {
        "table": variant,
        "weights": minilm.FILES["model.safetensors"],
        "sentences": COUNT[size],
        "recipe": {"steps": 0},
        "text": source.name,
        "data": source.fingerprint,
    }


def sentences_of(text: str, count: int, generator: Generator) -> list[str]:
    """Whole lines of a text, neither very short nor long, drawn without repetition."""
    lines = [line for line in text.split("\n")[1:] if len(line.split()) in WORDS]
    drawn = torch.randperm(len(lines), generator=generator)[:count]
    return [lines[i] for i in drawn.tolist()]


def shuffled(sentence: str, generator: Generator) -> str:
    """The same words in another order."""
    words = sentence.split()
    order = torch.randperm(len(words), generator=generator)
    return " ".join(words[i] for i in order.tolist())


def measure(config: dict[str, Any], seed: int, session: Session) -> Measured:
    """Put a table in, and compare what sentences become."""
    chance = torch.Generator().manual_seed(seed)
    held_out = load_text(config["text"]).held_out
    sentences = sentences_of(held_out, config["sentences"], chance)
    orders = [shuffled(sentence, chance) for sentence in sentences]
    whole = minilm.load()
    table = TABLES[config["table"]](minilm.position_table(), chance)
    encoder = whole.positioned(table)
    here, there = encoder.embed(sentences), encoder.embed(orders)
    pairs = _cosines(*(encoder.embed(side) for side in zip(*PAIRS, strict=True)))
    dog = encoder.embed(DOG)
    final = {
        "dog": float(_cosines(dog[:1], dog[1:])),
        "pairs": float(pairs.mean()),
        "shuffled": float(_cosines(here, there).mean()),
        "shuffled_least": float(_cosines(here, there).min()),
        "shuffled_apart": float((here - there).abs().max()),
        "unrelated": float(_cosines(here, here.roll(1, dims=0)).mean()),
        "intact": float(_cosines(here, whole.embed(sentences)).mean()),
    }
    profiles = {"pairs": _profile(pairs), **neighbours(encoder, sentences)}
    rounded = {name: round(value, 8) for name, value in final.items()}
    return Measured({}, rounded, profiles)


def _cosines(a: Tensor, b: Tensor) -> Tensor:
    """Of unit vectors, row by row, in float64."""
    return (a.double() * b.double()).sum(dim=1)


def _profile(values: Tensor) -> Profile:
    """Values at 0, 1, 2, …"""
    return Profile(
        list(range(len(values))), [round(value, 6) for value in values.tolist()]
    )


def neighbours(
    encoder: minilm.SentenceEncoder, sentences: list[str]
) -> dict[str, Profile]:
    """The share of attention that goes to the token before, after, and itself.

    A mean over the tokens that have a word on both sides; heads are counted layer by
    layer.
    """
    total, count = torch.zeros(3, 0), 0
    for sentence in sentences:
        ids, _ = encoder.tokens([sentence])
        weights = torch.cat(attention_weights(encoder.model, ids), dim=1)[0].double()
        here = torch.arange(2, ids.shape[1] - 2)
        found = [weights[:, here, here + step].sum(dim=1) for step in (-1, 1, 0)]
        total = torch.stack(found) if count == 0 else total + torch.stack(found)
        count += len(here)
    names = ("previous", "next", "self")
    shares = zip(names, total / count, strict=True)
    return {f"attention/{name}": _profile(share) for name, share in shares}


EXPERIMENT = Experiment(
    name="minilm",
    question="What does a trained encoder of sentences lose with its position table?",
    variants=tuple(TABLES),
    quick_variants=("intact", "zeroed"),
    seeds=3,
    config=config,
    measure=measure,
)
