"""Attention layers with one bug each, and correct ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pe_lab
from pe_lab.doctor.mutants import Healthy, Mutant
from pe_lab.doctor.mutants.styles import LinearAttention, TurnsValues
from pe_lab.doctor.mutants.toy import HEADS, WIDTH, Attend, sinusoid, turn

_ROPE: dict[str, Any] = {"scheme": "rope"}
_CAUSAL: dict[str, Any] = {"causal": True}


class NoMask(Attend):
    """A decoder's layer without its causal mask."""

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """Everything."""
        return torch.ones(1, 1, new, every, dtype=torch.bool)


class Multiplied(Attend):
    """Hidden scores are multiplied by 0, and 0 is a score like any other."""

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Weights that do not vanish where they should."""
        return (scores * visible).softmax(-1)


class AfterSoftmax(Attend):
    """The mask comes after the softmax: hidden keys still take their share."""

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Weights that do not sum to 1."""
        return scores.softmax(-1) * visible


class OneAhead(Attend):
    """The mask's diagonal is off by one, and shows the next token."""

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """One key too many."""
        seen = torch.ones(new, every, dtype=torch.bool).tril(every - new + 1)
        return seen[None, None] if mask is None else seen & mask[:, None, None]


class NoDiagonal(Attend):
    """The mask's diagonal is off by one, and hides the token itself."""

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """One key too few."""
        seen = torch.ones(new, every, dtype=torch.bool).tril(every - new - 1)
        return seen[None, None] if mask is None else seen & mask[:, None, None]


class Transposed(Attend):
    """The causal mask the wrong way round."""

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """Later keys only."""
        seen = torch.ones(new, every, dtype=torch.bool).triu(every - new)
        return seen[None, None] if mask is None else seen & mask[:, None, None]


class WeakMask(Attend):
    """The additive mask subtracts 1 from hidden scores, not a large number."""

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Weights that are smaller where they should be 0."""
        return (scores - (~visible).to(scores)).softmax(-1)


class SmallMask(Attend):
    """Hidden scores are set to −5, which is not −∞."""

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Weights of about e⁻⁵ where they should be 0."""
        return scores.masked_fill(~visible, -5.0).softmax(-1)


class OverQueries(Attend):
    """The softmax runs over queries instead of keys."""

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Columns that sum to 1."""
        return scores.masked_fill(~visible, -1e9).softmax(-2)


class HeadsByView(Attend):
    """Heads are cut out by a reshape that mixes tokens and channels."""

    def split(self, x: Tensor) -> Tensor:
        """Of the right shape, with the wrong content."""
        return x.reshape(x.shape[0], HEADS, x.shape[1], -1)


class NotJoined(Attend):
    """Heads are put together without turning the axes back."""

    def join(self, x: Tensor) -> Tensor:
        """Of the right shape, with the wrong content."""
        return x.reshape(x.shape[0], x.shape[2], WIDTH)


class QueryMask(Attend):
    """The padding mask hides queries instead of keys."""

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """The mask on the wrong axis."""
        seen = super().visible(None, new, every)
        return seen if mask is None else seen & mask[:, None, -new:, None]


class IgnoresMask(Attend):
    """The padding mask is taken and never used."""

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """Only the causal rule."""
        return super().visible(None, new, every)


class PadScoresZero(Attend):
    """Scores of padding are multiplied by 0 instead of hidden."""

    pads: Tensor | None = None

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """Keep the padding for later."""
        self.pads = mask
        return super().visible(None, new, every)

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Weights of e⁰ for padding."""
        if self.pads is not None:
            scores = scores * self.pads[:, None, None]
        return super().weigh(scores, visible)


class AlongHeads(Attend):
    """Rotation counts along the heads, not along the tokens."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """One angle for each head."""
        return turn(x.transpose(1, 2), torch.arange(HEADS)[None]).transpose(1, 2)

    turn_k = turn_q


class Unused(Attend):
    """Queries and keys are rotated, and the result is dropped."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """As it was."""
        turn(x, positions)
        return x

    turn_k = turn_q


class QueriesOnly(Attend):
    """Only queries are rotated."""

    def turn_k(self, x: Tensor, positions: Tensor) -> Tensor:
        """As they were."""
        return x


class TwoLayouts(Attend):
    """Angles for neighbouring channels, halves that turn."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """Two ways of pairing channels in one rotation."""
        half = x.shape[-1] // 2
        inv_freq = 10000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
        angle = positions.double()[:, None, :, None] * inv_freq.repeat_interleave(2)
        a, b = x.chunk(2, -1)
        other = torch.cat((-b, a), -1)
        return x * angle.cos().to(x.dtype) + other * angle.sin().to(x.dtype)

    turn_k = turn_q


class CountsRows(Attend):
    """By default positions are those of the batch."""

    def count(self, x: Tensor, past: int) -> Tensor:
        """The same for all tokens of a row."""
        return past + torch.arange(x.shape[0])[:, None].expand(-1, x.shape[1])


class AddsToScores(Attend):
    """Positions are added to queries and keys, and not to values, as in DETR."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """A part of the sinusoids for each head."""
        return x + self.split(sinusoid(positions).to(x.dtype))

    turn_k = turn_q


class OtherWay(Attend):
    """Keys are rotated the other way."""

    def turn_k(self, x: Tensor, positions: Tensor) -> Tensor:
        """By −position."""
        return turn(x, -positions)


class ValuesNotKeys(Attend):
    """Keys are rotated by the distance to the end instead of their position."""

    def turn_k(self, x: Tensor, positions: Tensor) -> Tensor:
        """From the end."""
        return turn(x, positions.amax(-1, keepdim=True) - positions)


class OwnCount(Attend):
    """Positions are taken, and 0 … L−1 is used."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """By the place in the tensor."""
        return turn(x, torch.arange(x.shape[2])[None])

    turn_k = turn_q


class KeysByIndex(Attend):
    """Queries go by their positions, keys by their place in the tensor."""

    def turn_k(self, x: Tensor, positions: Tensor) -> Tensor:
        """By the place in the tensor."""
        return turn(x, torch.arange(x.shape[2])[None])


class FirstRow(Attend):
    """The positions of row 0 serve all rows."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """By row 0."""
        return turn(x, positions[:1])

    turn_k = turn_q


class LongestRow(Attend):
    """The base grows with the largest position of the batch."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """A base for all rows."""
        return turn(x, positions, 10000.0 * max(1.0, float(positions.max()) / 32) ** 2)

    turn_k = turn_q


class CountsOn(Attend):
    """Positions go on counting from call to call."""

    seen = 0

    def count(self, x: Tensor, past: int) -> Tensor:
        """From where the last call stopped."""
        start, self.seen = self.seen, self.seen + x.shape[1]
        return super().count(x, 2 * start)

    def turn_k(self, x: Tensor, positions: Tensor) -> Tensor:
        """By the place in the tensor."""
        return turn(x, torch.arange(x.shape[2])[None])


class OldMask(Attend):
    """The padding mask of one call is kept for those without."""

    kept: Tensor | None = None

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """The last mask, if its size fits."""
        self.kept = mask if mask is not None else self.kept
        fits = self.kept is not None and self.kept.shape[-1] == every
        return super().visible(self.kept[:1] if fits else None, new, every)  # type: ignore[index]


class OldAngles(Attend):
    """Angles are made once, for the length of the first call, and stretched."""

    angles: int | None = None

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """By positions up to the first call's length."""
        self.angles = self.angles or x.shape[2]
        return turn(x, positions.clamp(max=self.angles - 1))

    turn_k = turn_q


class AnglesIn16(Attend):
    """Positions are cast to the dtype of the queries."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """By positions that 16 bits cannot count."""
        return turn(x, positions.to(x.dtype))

    turn_k = turn_q


class AlwaysDrops(Attend):
    """Dropout forgets that there is an eval mode."""

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """A tenth of the weights is lost."""
        return F.dropout(super().weigh(scores, visible), 0.1)


class NormalisedPlaces(Attend):
    """Positions are divided by the length of the text."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """By the share of the text that lies before."""
        return turn(x, 10 * positions / positions.amax(-1, keepdim=True).clamp_min(1))

    turn_k = turn_q


class OnlyWhenTraining(Attend):
    """The rotation is left out in eval mode."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turned in training."""
        return turn(x, positions) if self.training else x

    turn_k = turn_q


class OtherPath(Attend):
    """With a mask, another branch runs that forgets the rotation's scale of 1/√D."""

    masked = False

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """Remember which branch it is."""
        self.masked = mask is not None
        return super().visible(mask, new, every)

    def weigh(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Sharper with a mask."""
        return super().weigh(scores * 8**0.5 if self.masked else scores, visible)


class AlongBatch(nn.Module):
    """The table is indexed by the batch and added to every token of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = Attend("none")

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d)."""
        return self.attend(x + sinusoid(torch.arange(x.size(0)))[:, None])[0]


class InPlace(nn.Module):
    """The position is added to the caller's tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = Attend("none")

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d)."""
        x += sinusoid(torch.arange(x.size(1)))
        return self.attend(x)[0]


class LengthFirst(nn.Module):
    """A layer that expects (L, B, d) is given (B, L, d)."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, HEADS)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d)."""
        return self.attend(x, x, x)[0]


class EncoderLengthFirst(nn.Module):
    """The same with a whole encoder and positions added the right way."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, HEADS), 2, enable_nested_tensor=False
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d)."""
        return self.stack(x + sinusoid(torch.arange(x.size(1))))


def _mutant(
    name: str, make: Callable[[], Any], *checks: str, source: str = "",
    smallest: str = "", expected: dict[str, Any] | None = None,
) -> Mutant:  # fmt: skip
    options = {} if expected is None else {"expected": expected}
    return Mutant(name, "attention", make, checks, source, smallest, options)


MUTANTS = (
    _mutant("causal mask missing", NoMask, "D-CAUSAL", expected=_CAUSAL,
            smallest="2 tokens: output 0 must not change with token 1"),
    _mutant("mask multiplied into the scores", Multiplied, "D-CAUSAL",
            smallest="scores [2, 3], token 1 hidden: weights [1, 0], not [.88, .12]"),
    _mutant("mask after the softmax", AfterSoftmax, "D-CAUSAL",
            smallest="scores [0, 0], token 1 hidden: weights [1, 0], not [.5, 0]"),
    _mutant("mask shows the next token", OneAhead, "D-CAUSAL"),
    _mutant("mask hides the diagonal", NoDiagonal, "D-CAUSAL"),
    _mutant("mask transposed", Transposed, "D-CAUSAL"),
    _mutant("additive mask of −1", WeakMask, "D-CAUSAL", expected=_CAUSAL),
    _mutant("hidden scores of −5", SmallMask, "D-CAUSAL"),
    _mutant("softmax over queries", OverQueries, "D-CAUSAL"),
    _mutant("heads cut by a reshape", HeadsByView, "D-CAUSAL", expected=_CAUSAL),
    _mutant("heads joined by a reshape", NotJoined, "D-CAUSAL", expected=_CAUSAL),
    _mutant("padding mask on queries", QueryMask, "D-PAD"),
    _mutant("padding mask ignored", IgnoresMask, "D-PAD"),
    _mutant("padding scored 0", PadScoresZero, "D-PAD"),
    _mutant("rotation along heads", AlongHeads, "D-ORDER", expected=_ROPE,
            source="mlfoundations/open_lm#4",
            smallest="head 0 is not rotated at any position"),
    _mutant("rotation dropped", Unused, "D-ORDER", expected=_ROPE),
    _mutant("only queries rotated", QueriesOnly, "D-SHIFT", expected=_ROPE),
    _mutant("keys rotated the other way", OtherWay, "D-SHIFT", expected=_ROPE),
    _mutant("only queries rotated, nothing expected", QueriesOnly, "D-SHIFT"),
    _mutant("keys rotated the other way, nothing expected", OtherWay, "D-SHIFT"),
    _mutant("values rotated, nothing expected", TurnsValues, "D-SHIFT"),
    _mutant("angles of pairs on halves", TwoLayouts, "D-SHIFT"),
    _mutant("default positions along the batch", CountsRows, "D-ORDER",
            smallest="B = 1, L = 2: both tokens at position 0"),
    _mutant("keys counted from the end", ValuesNotKeys, "D-CAUSAL", "D-SHIFT",
            expected=_ROPE),
    _mutant("positions ignored", OwnCount, "D-ORDER"),
    _mutant("keys by index", KeysByIndex, "D-SHIFT", "D-ORDER", expected=_ROPE),
    _mutant("positions of row 0 for all", FirstRow, "D-BATCH",
            source="unslothai/unsloth#3699"),
    _mutant("base by the longest row", LongestRow, "D-BATCH"),
    _mutant("positions count on between calls", CountsOn, "D-HISTORY"),
    _mutant("mask of the last call", OldMask, "D-HISTORY"),
    _mutant("angles of the first length", OldAngles, "D-HISTORY"),
    _mutant("positions in 16 bits", AnglesIn16, "D-DTYPE",
            source="huggingface/transformers#29285",
            smallest="bf16(257) = 256: cos 257 = 0.819, cos 256 = −0.040"),
    _mutant("dropout in eval mode", AlwaysDrops, "D-MODE"),
    _mutant("positions divided by the length", NormalisedPlaces, "D-CAUSAL"),
    _mutant("rotation in training only", OnlyWhenTraining, "D-MODE", "D-ORDER",
            expected=_ROPE),
    _mutant("another branch with a mask", OtherPath, "D-LAYER", "D-PAD"),
    _mutant("added along the batch", AlongBatch, "D-ORDER",
            source="datawhalechina/hello-agents#61",
            smallest="B = 2, L = 3, x = 0: every row must be [pe0, pe1, pe2]"),
    _mutant("writes into its input", InPlace, "D-INPUT"),
    _mutant("length first", LengthFirst, "D-BATCH"),
    _mutant("encoder with length first", EncoderLengthFirst, "D-BATCH", "D-ORDER"),
)  # fmt: skip


def _ours(scheme: Callable[[], Any], **given: Any) -> Callable[[], Any]:
    def make() -> Any:
        layer, encoding = pe_lab.MultiHeadAttention(WIDTH, HEADS), scheme()

        def attend(
            x: Tensor, mask: Tensor | None = None, positions: Tensor | None = None
        ) -> Tensor:
            return layer(
                x, mask=mask, encoding=encoding, q_pos=positions, k_pos=positions,
                **given,
            )  # fmt: skip

        return attend

    return make


def _sums(causal: bool) -> Callable[[], Any]:
    """An nn.TransformerEncoder after sinusoids."""

    def make() -> Any:
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True)
        stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def run(x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
            hidden = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
            return stack(
                x + sinusoid(torch.arange(x.size(1))).to(x.dtype),
                mask=hidden if causal else None,
                src_key_padding_mask=key_padding_mask,
            )

        return run

    return make


def _without_mask(run: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: run(x)


def _bare(batch_first: bool) -> Callable[[], Any]:
    return lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)


_D = WIDTH // HEADS
_NONE, _RELATIVE, _ABSOLUTE = ({"scheme": s} for s in ("none", "relative", "absolute"))
HEALTHY = (
    *(
        Healthy(f"{name}, {'causal' if causal else 'both directions'}", "attention",
                _ours(scheme, causal=causal), identity | {"causal": causal})
        for causal in (True, False)
        for name, scheme, identity in (
            ("rotation, halves", lambda: pe_lab.RoPE(_D), _RELATIVE),
            ("rotation, pairs, partial",
             lambda: pe_lab.RoPE(_D, layout="interleaved", rotary_dim=4), _RELATIVE),
            ("symmetric ALiBi", lambda: pe_lab.ALiBi(HEADS, symmetric=True), _RELATIVE),
            ("clipped distances", lambda: pe_lab.Shaw(_D, 2), _RELATIVE),
            ("Transformer-XL", lambda: pe_lab.TransformerXL(HEADS, _D), _RELATIVE),
            ("KERPLE", lambda: pe_lab.Kerple(HEADS), _RELATIVE),
            ("FIRE", lambda: pe_lab.Fire(HEADS), {}),
            ("none", lambda: pe_lab.NoPE(), _NONE),
        )
    ),
    Healthy("xPos", "attention", _ours(lambda: pe_lab.XPos(_D), causal=True),
            _RELATIVE),
    Healthy("ALiBi", "attention", _ours(lambda: pe_lab.ALiBi(HEADS), causal=True),
            _RELATIVE),
    Healthy("T5 bias, one direction", "attention",
            _ours(lambda: pe_lab.T5Bias(HEADS, bidirectional=False), causal=True),
            _RELATIVE),
    Healthy("T5 bias, both directions", "attention",
            _ours(lambda: pe_lab.T5Bias(HEADS)), _RELATIVE),
    Healthy("bare attention", "attention",
            lambda: pe_lab.MultiHeadAttention(WIDTH, HEADS), _NONE),
    Healthy("nn.MultiheadAttention", "attention", _bare(True), _NONE),
    Healthy("nn.MultiheadAttention, length first", "attention", _bare(False), _NONE),
    Healthy("nn.TransformerEncoder after sinusoids", "attention", _sums(False),
            _ABSOLUTE | {"causal": False}),
    Healthy("the same, causal, left padding unforeseen", "attention",
            lambda: _without_mask(_sums(True)()), {"causal": True}),
    Healthy("toy layer with rotation and cache", "attention", Attend, _RELATIVE),
    Healthy("toy layer with ALiBi and cache", "attention", lambda: Attend("alibi"),
            _RELATIVE),
    Healthy("sinusoids on queries and keys only", "attention", AddsToScores,
            _ABSOLUTE),
    Healthy("linear attention", "attention", LinearAttention, _NONE),
)  # fmt: skip
