"""Every task asks what it says it asks, and its guess is the loss without any order."""

import math

import pytest
import torch

from pe_lab.lab import subwords, tasks
from pe_lab.lab.data import number_pairs
from pe_lab.lab.tasks import IGNORE
from pe_lab.lab.text import Text
from pe_lab.lab.vocabulary import BOS, EOS, PAD

TEXT = Text("kjv", "the cat eats the fish and the dog " * 20, "the fish " * 30, "")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def all_tasks():
    return [
        tasks.position(),
        tasks.left_neighbour(),
        tasks.fixed_abc(),
        tasks.permuted_abc(),
        tasks.next_character(TEXT),
        tasks.masked_character(TEXT),
        tasks.next_word(TEXT, 5),
        tasks.next_token(TEXT, 20),
        tasks.masked_token(TEXT, 20),
        tasks.numbers(number_pairs(5_000)),
    ]


@pytest.mark.parametrize("task", all_tasks(), ids=lambda task: task.name)
def test_ids_fit_the_vocabularies_and_a_seed_decides_the_batch(task):
    for draw in (task.draw, task.draw_held_out):
        batch, again = draw(8, generator(3)), draw(8, generator(3))
        assert torch.equal(batch.inputs, again.inputs)
        assert torch.equal(batch.targets, again.targets)
        asked = batch.targets[batch.targets != IGNORE]
        assert asked.min() >= 0 and asked.max() < task.num_outputs
        read = batch.inputs if batch.source is None else batch.source
        assert read.min() >= 0 and read.max() < task.num_inputs


def test_position_is_told_by_no_token():
    batch = tasks.position(5, 7).draw(2_000, generator())
    assert torch.equal(batch.targets[0], torch.arange(5))
    for token in range(7):  # 10 000 draws: each place has about 286 of each token
        counts = (batch.inputs == token).sum(dim=0)
        assert counts.min() > 200 and counts.max() < 370  # five standard deviations


def test_left_neighbour_is_the_token_before():
    batch = tasks.left_neighbour().draw(4, generator())
    assert torch.equal(batch.targets[:, 1:], batch.inputs[:, :-1])
    assert (batch.targets[:, 0] == IGNORE).all()


def test_fixed_abc_is_a_trap_and_permuted_abc_is_none():
    fixed = tasks.fixed_abc().draw(50, generator())
    assert torch.equal(fixed.inputs, fixed.targets)
    shuffled = tasks.permuted_abc().draw(600, generator())
    assert torch.equal(shuffled.inputs.sort(dim=1).values, shuffled.targets)
    orders = {tuple(row) for row in shuffled.inputs.tolist()}
    assert len(orders) == 6


def test_next_character_is_the_input_shifted_by_one():
    batch = tasks.next_character(TEXT, 8).draw(4, generator())
    assert torch.equal(batch.targets[:, :-1], batch.inputs[:, 1:])


def test_masked_characters_are_covered_and_only_they_are_asked():
    task = tasks.masked_character(TEXT, 50, rate=0.15)
    batch = task.draw(200, generator())
    covered = batch.inputs == task.num_inputs - 1
    assert torch.equal(covered, batch.targets != IGNORE)
    assert 0.13 < covered.float().mean() < 0.17  # 10 000 draws: deviation 0.0036


def test_tokens_are_the_subwords_of_the_text():
    pieces = subwords.learn(TEXT, 20)
    batch = tasks.next_token(TEXT, 20, 8).draw(40, generator())
    assert torch.equal(batch.targets[:, :-1], batch.inputs[:, 1:])
    assert all(pieces.decode(row) in TEXT.train for row in batch.inputs.tolist())
    assert batch.inputs.max() >= len(set(TEXT.train))  # not characters only


def test_masked_tokens_are_those_that_are_asked():
    task, pieces = tasks.masked_token(TEXT, 20, 50), subwords.learn(TEXT, 20)
    batch = task.draw(200, generator())
    covered = batch.inputs == task.num_inputs - 1
    assert torch.equal(covered, batch.targets != IGNORE)
    whole = torch.where(covered, batch.targets, batch.inputs)
    assert all(pieces.decode(row) in TEXT.train for row in whole.tolist())


def test_a_change_of_a_batch_is_made_to_every_tensor():
    """Devices and shares of a batch: none of its tensors is left behind."""
    ones = torch.ones(2, 2)
    batch = tasks.Batch(ones, ones, ones, ones).map(lambda tensor: 3 * tensor)
    assert all((tensor == 3).all() for tensor in vars(batch).values())
    assert tasks.Batch(ones, ones).map(lambda tensor: 3 * tensor).mask is None


def test_held_out_batches_come_from_the_held_out_text():
    batch = tasks.next_character(TEXT, 16).draw_held_out(50, generator())
    vocabulary = sorted(set(TEXT.train))
    assert {vocabulary[i] for i in batch.inputs.flatten().tolist()} == set("the fis")


def test_the_guess_of_a_text_task_is_the_entropy_of_its_frequencies():
    text = Text("kjv", "ab" * 60, "aaab" * 30, "")
    want = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert tasks.next_character(text).guess == pytest.approx(want, abs=1e-12)


def test_number_batches_are_framed_by_marks_and_padded_at_the_end():
    data = number_pairs(5_000)
    pairs = [data.train[0], max(data.train, key=lambda pair: len(pair[1]))]
    batch = tasks.number_batch(pairs, data, length=30)
    assert batch.inputs.shape == batch.targets.shape == batch.source.shape == (2, 30)
    for row, (words, numeral) in enumerate(pairs):
        ids, n = data.characters.encode(numeral), len(numeral)
        assert batch.inputs[row].tolist() == [BOS, *ids] + [PAD] * (29 - n)
        assert batch.targets[row].tolist() == [*ids, EOS] + [IGNORE] * (29 - n)
        source = [*data.words.encode(words), EOS]
        assert batch.source[row].tolist() == source + [PAD] * (30 - len(source))


def test_number_tasks_draw_from_the_right_side_of_the_split():
    data = number_pairs(5_000)
    batch = tasks.numbers(data).draw_held_out(40, generator())
    held_out = {numeral for _, numeral in data.held_out}
    for row in batch.inputs.tolist():
        assert tuple(data.characters.decode(row)) in held_out
