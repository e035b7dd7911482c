"""Models with one bug each, and correct ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pe_lab
from pe_lab.doctor.mutants import Healthy, Mutant, styles
from pe_lab.doctor.mutants.attention import (
    AlwaysDrops,
    AnglesIn16,
    IgnoresMask,
    Multiplied,
    NoDiagonal,
    NoMask,
    OldAngles,
    OneAhead,
    OwnCount,
)
from pe_lab.doctor.mutants.toy import (
    HEADS,
    VOCABULARY,
    WIDTH,
    Attend,
    Kept,
    Toy,
    sinusoid,
    slopes,
    turn,
)


class StartsAgain(Toy):
    """Every decode step counts from 0."""

    def count(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """0 … of the new tokens."""
        return torch.arange(ids.shape[1]).expand(len(ids), -1)


class PromptAgain(Toy):
    """The offset grows by the whole prompt a second time."""

    def count(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """After a prompt of 6: 12, 13, … instead of 6, 7, …"""
        steps = super().count(ids, mask, cache)
        first = cache[0][2][:, -1:] == cache[0][0].shape[2] - 1 if cache else None
        return steps if first is None else steps + first * cache[0][0].shape[2]


class OneTooFar(Toy):
    """The decode position already counts the token that is being fed."""

    def count(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """After a prompt of 9: 10, 12, … instead of 9, 10, …"""
        return super().count(ids, mask, cache) + (1 if cache else 0)


class LengthOfNew(Toy):
    """The offset is the number of new tokens, not of those before."""

    def count(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """The same for every step."""
        steps = torch.arange(ids.shape[1]).expand(len(ids), -1)
        return steps + ids.shape[1] if cache else steps


class OffsetIn16(Toy):
    """The offset is cast to bfloat16 on its way, which cannot count past 256."""

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """Positions that are rounded."""
        return x + sinusoid(positions.to(torch.bfloat16).float())


class KeysAgain(Attend):
    """Cached keys are turned again with each step."""

    def append(self, cache: Kept, new: Kept) -> Kept:
        """Keys turned twice, three times …"""
        k, v, places = cache
        return super().append((turn(k, places), v, places), new)


class KeysUnturned(Attend):
    """Keys are cached before they are turned, and never turned later."""

    plain: Tensor | None = None

    def turn_k(self, x: Tensor, positions: Tensor) -> Tensor:
        """Remember them as they are."""
        self.plain = x
        return turn(x, positions)

    def forward(self, *given: Any, **named: Any) -> tuple[Tensor, Kept]:
        """Hand on what is not turned."""
        out, (k, v, places) = super().forward(*given, **named)
        assert self.plain is not None
        new = self.plain.shape[2]
        return out, (torch.cat((k[:, :, :-new], self.plain), 2), v, places)


class ValuesLost(Attend):
    """Old values are replaced by zeros."""

    def append(self, cache: Kept, new: Kept) -> Kept:
        """Keys of the past without their values."""
        return super().append((cache[0], torch.zeros_like(cache[1]), cache[2]), new)


class NewestFirst(Attend):
    """New keys are put before the old ones."""

    def append(self, cache: Kept, new: Kept) -> Kept:
        """The wrong way round, which a causal mask of several tokens notices."""
        return super().append(new, cache)


class Unaligned(Attend):
    """The causal mask puts the first query on the first key."""

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """Right for one token and for a prompt, wrong for several after a cache."""
        seen = torch.ones(new, every, dtype=torch.bool)
        seen = seen.tril() if new > 1 else seen
        return seen[None, None] if mask is None else seen & mask[:, None, None]


class BiasOfQueries(Attend):
    """ALiBi is built over the query length: for one token it is 0."""

    def bias(self, positions: Tensor, places: Tensor) -> Tensor:
        """Zero while decoding."""
        if positions.shape[1] < places.shape[1]:
            return slopes() * torch.zeros(1, 1)
        return super().bias(positions, places)


class BaseByLength(Attend):
    """The base grows when the text is longer than 16, cached keys keep the old one."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """By a base of the largest position."""
        over = max(1.0, (float(positions.max()) + 1) / 16)
        return turn(x, positions, 10000.0 * over**1.5)

    turn_k = turn_q


class BaseGrows(Attend):
    """The base grows with the longest text so far, and is never set back."""

    longest = 16.0

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """By a base that remembers."""
        self.longest = max(self.longest, float(positions.max()) + 1)
        return turn(x, positions, 10000.0 * (self.longest / 16) ** 1.5)

    turn_k = turn_q


class NoRotation(Attend):
    """A layer that lost its encoding."""

    def turn_q(self, x: Tensor, positions: Tensor) -> Tensor:
        """As it was."""
        return x

    turn_k = turn_q


class SharedCache(Toy):
    """All layers continue from the cache of the first."""

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Any = None,
    ) -> tuple[Tensor, list[Kept]]:
        """Right without a cache."""
        out, kept = super().forward(ids, mask, positions, cache)
        return out, [kept[0]] * 2


class MaskOfPrompt(Attend):
    """While decoding, the padding mask is left out."""

    def visible(self, mask: Tensor | None, new: int, every: int) -> Tensor:
        """Padding is seen again from the second step on."""
        return super().visible(mask if new == every else None, new, every)


class LongestCounts(Toy):
    """While decoding, all rows are as far as the longest."""

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Any = None,
    ) -> tuple[Tensor, list[Kept]]:
        """One position for the batch."""
        if cache and positions is not None:
            positions = positions.amax(0, keepdim=True).expand(len(ids), -1)
        return super().forward(ids, mask, positions, cache)


class KeepsOffset(Toy):
    """The offset of decoding lies on the module and is kept for the next text."""

    delta = 0

    def count(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """Shifted by what an earlier text left."""
        if cache:
            self.delta = 2
            return super().count(ids, mask, cache)
        return super().count(ids, mask, cache) + self.delta


class NoPositions(nn.Module):
    """A learned table, a mask, and no way to say where a text begins."""

    def __init__(self) -> None:
        super().__init__()
        self.toy = Toy("learned")

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits (B, L, vocabulary)."""
        mask = None if attention_mask is None else attention_mask.bool()
        return self.toy(ids, mask)[0]


class Inverted(nn.Module):
    """The attention mask is read the other way: 1 hides."""

    def __init__(self) -> None:
        super().__init__()
        self.toy = Toy()

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits (B, L, vocabulary)."""
        mask = None if attention_mask is None else attention_mask == 0
        return self.toy(ids, mask)[0]


class Packed(nn.Module):
    """Documents packed in rows.

    Args:
        anew: whether positions start anew in each document.
        apart: whether documents do not see each other.
    """

    def __init__(self, scheme: str, anew: bool, apart: bool) -> None:
        super().__init__()
        self.toy, self.anew, self.apart = Toy(scheme), anew, apart

    def forward(self, ids: Tensor, document_ids: Tensor | None = None) -> Tensor:
        """Logits (B, L, vocabulary)."""
        if document_ids is None:
            return self.toy(ids)[0]
        same = document_ids[:, :, None] == document_ids[:, None, :]
        places = same.tril().sum(-1) - 1 if self.anew else None
        return self.toy(ids, same if self.apart else None, places)[0]


class AlongBatch(Toy):
    """The table is indexed by the batch."""

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """One position for each row."""
        return x + sinusoid(torch.arange(x.size(0)))[:, None]


class Clamped(Toy):
    """Positions past the table get its last row."""

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """Never out of range."""
        assert self.table is not None
        return x + self.table(positions.clamp(max=self.table.num_embeddings - 1))


class Wrapped(Toy):
    """Positions past the table begin again at its first row."""

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """Never out of range."""
        assert self.table is not None
        return x + self.table(positions % self.table.num_embeddings)


class ChunkFits(Toy):
    """The bound is checked against the new tokens, not against where they end."""

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rows past the table are those of its end."""
        assert self.table is not None
        last = self.table.num_embeddings
        if x.shape[1] > last:
            raise ValueError(f"{x.shape[1]} tokens, and a table of {last}")
        return x + self.table(positions.clamp(max=last - 1))


class Scaled(Toy):
    """Token embeddings N(0, 1/d), times a factor, beside sinusoids.

    Args:
        factor: √d makes them as large as they should be.
    """

    def __init__(self, factor: float) -> None:
        super().__init__("sinusoidal")
        self.factor = factor
        nn.init.normal_(self.embed.weight, std=WIDTH**-0.5)

    def look_up(self, ids: Tensor) -> Tensor:
        """(B, L, d)."""
        return self.embed(ids) * self.factor


class FromTheEnd(Toy):
    """Positions count from the last token."""

    def count(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """L − 1 … 0."""
        return super().count(ids, mask, cache).flip(-1)


class RandomStart(Toy):
    """A random start, as in training, in eval mode too."""

    def count(self, ids: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """Somewhere."""
        start = torch.randint(20, (1,))
        return start + torch.arange(ids.shape[1]).expand(len(ids), -1)


class DropsInput(Toy):
    """Dropout on the sum, whatever the mode."""

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """A tenth of the channels is lost."""
        return F.dropout(super().place(x, positions), 0.1)


class GivenPositions(Toy):
    """Given positions go through another branch, which doubles them."""

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Any = None,
    ) -> tuple[Tensor, list[Kept]]:
        """Right without positions."""
        if positions is not None:
            positions = 2 * positions
        return super().forward(ids, mask, positions, cache)


class OverTokens(Toy):
    """A norm over tokens and channels together."""

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """Every token knows the mean of all."""
        x = super().place(x, positions)
        return F.layer_norm(x, x.shape[1:])


class OverRows(Toy):
    """A norm over the rows of the batch."""

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """Every row knows the mean of all."""
        x = super().place(x, positions)
        return x - x.mean(0, keepdim=True) if len(x) > 1 else x


class PadsIncluded(Toy):
    """The mean over tokens that is added includes the padding."""

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """A summary of all tokens in each."""
        return super().place(x, positions) + x.mean(1, keepdim=True)


def _mutant(
    name: str, make: Callable[[], Any], *checks: str, source: str = "",
    smallest: str = "", expected: dict[str, Any] | None = None,
) -> Mutant:  # fmt: skip
    options = {} if expected is None else {"expected": expected}
    return Mutant(name, "model", make, checks, source, smallest, options)


def _toy(scheme: str = "rope", **given: Any) -> Callable[[], Toy]:
    return lambda: Toy(scheme, **given)


_SIN: dict[str, Any] = {"scheme": "sinusoidal"}
_BALANCE: dict[str, Any] = {"balance": 0.29}  # of Scaled(√d)
_BOTH: dict[str, Any] = {"causal": False}
MUTANTS = (
    _mutant("decoding starts at 0 each step", lambda: StartsAgain("rope"), "D-CACHE",
            source="lucidrains/rotary-embedding-torch#11",
            smallest="d = 2: [1, 0] at 3 must give [−0.990, 0.141], not [1, 0]"),
    _mutant("decoding of sinusoids starts at 0", lambda: StartsAgain("sinusoidal"),
            "D-CACHE"),
    _mutant("offset counts the prompt twice", PromptAgain, "D-CACHE",
            source="skyzh/tiny-llm#46",
            smallest="prompt of 6: offsets 0, 6, 7, 8, not 0, 6, 12, 13"),
    _mutant("offset one too far", OneTooFar, "D-CACHE",
            source="microsoft/onnxruntime-genai#2354",
            smallest="prompt of 9: lengths 0, 9, 10, not 0, 10, 11"),
    _mutant("offset one too far, learned table", lambda: OneTooFar("learned"),
            "D-CACHE"),
    _mutant("offset of the new tokens", LengthOfNew, "D-CACHE",
            source="RobertCsordas/moeut#6"),
    _mutant("positions in bfloat16", lambda: OffsetIn16("sinusoidal"), "D-DTYPE",
            "D-LEN", source="keras-team/keras-hub#1544",
            smallest="start 257 in bfloat16 is 256"),
    _mutant("cached keys turned again", _toy(attend=KeysAgain), "D-CACHE",
            source="NeuraLegion/shainet#110",
            smallest="[1, 0] at 2 stays [−0.416, 0.909], not [−0.654, −0.757]"),
    _mutant("cached keys not turned", _toy(attend=KeysUnturned), "D-CACHE"),
    _mutant("cached values lost", _toy(attend=ValuesLost), "D-CACHE"),
    _mutant("new keys before old ones", _toy(attend=NewestFirst), "D-CACHE"),
    _mutant("causal mask of chunks not aligned", _toy(attend=Unaligned), "D-CACHE",
            source="vllm-project/vllm#945"),
    _mutant("ALiBi vanishes while decoding", _toy("alibi", attend=BiasOfQueries),
            "D-CACHE", source="keras-team/keras-hub#2861",
            smallest="3 cached keys, 1 query: neighbours differ by one slope"),
    _mutant("base grows with a cache", _toy(attend=BaseByLength), "D-CACHE",
            "D-CAUSAL", "D-BATCH", source="huggingface/transformers#25104",
            smallest="16 → 32 tokens: base 1e4 → 28 284, keys keep 1e4"),
    _mutant("base never set back", _toy(attend=BaseGrows), "D-HISTORY", "D-BATCH",
            source="huggingface/transformers#27226"),
    _mutant("one cache for all layers", SharedCache, "D-CACHE"),
    _mutant("padding seen while decoding", _toy(attend=MaskOfPrompt), "D-CACHE",
            "D-PAD"),
    _mutant("one position for a ragged batch", LongestCounts, "D-CACHE", "D-PAD",
            source="unslothai/unsloth#3699",
            smallest="rows of 2 and 4 tokens: next positions 2 and 4, not 4 and 4"),
    _mutant("offset left for the next text", lambda: KeepsOffset("learned"),
            "D-HISTORY", source="huggingface/transformers#43952",
            smallest="text 2, image 1×2×2, text 1: the next token is at 5, not 7"),
    _mutant("left padding counted", NoPositions, "D-PAD",
            source="ndif-team/nnsight#672",
            smallest="after 2 pads, tokens read rows 0, 1, …, not 2, 3, …"),
    _mutant("attention mask inverted", Inverted, "D-PAD"),
    _mutant("packed documents keep counting", lambda: Packed("learned", False, True),
            "D-PACK", source="huggingface/nanoVLM#201",
            smallest="lengths 3 and 2: positions 0, 1, 2, 0, 1"),
    _mutant("packed documents see each other", lambda: Packed("rope", True, False),
            "D-PACK", source="huggingface/nanoVLM#201"),
    _mutant("packed documents are one text", lambda: Packed("learned", False, False),
            "D-PACK"),
    _mutant("table along the batch", AlongBatch, "D-ORDER",
            source="KasperGroesLudvigsen/influenza_transformer#9"),
    _mutant("learned table clamped", lambda: Clamped("learned"), "D-LEN"),
    _mutant("learned table clamped, both directions",
            lambda: Clamped("learned", causal=False), "D-LEN", expected=_BOTH),
    _mutant("learned table wrapped", lambda: Wrapped("learned", causal=False), "D-LEN",
            expected=_BOTH),
    _mutant("learned table wrapped, causal", lambda: Wrapped("learned"), "D-LEN"),
    _mutant("bound of the chunk", lambda: ChunkFits("learned"), "D-LEN",
            source="karpathy/nanochat#514",
            smallest="table of 8 rows, 7 past, 2 new: must grow or refuse"),
    _mutant("√d missing", lambda: Scaled(1.0), "D-SCALE", expected=_BALANCE,
            source="SamLynnEvans/Transformer#10",
            smallest="d = 512, N(0, 1/d): rms 0.044 beside a code of 0.707"),
    _mutant("√d doubled", lambda: Scaled(WIDTH), "D-SCALE", expected=_BALANCE),
    _mutant("positions from the end", FromTheEnd, "D-CAUSAL", "D-ORDER", "D-SHIFT"),
    _mutant("positions from the end, sinusoids", lambda: FromTheEnd("sinusoidal"),
            "D-CAUSAL", "D-LAYER"),
    _mutant("random start in eval mode", lambda: RandomStart("sinusoidal"), "D-MODE"),
    _mutant("dropout on the sum in eval mode", DropsInput, "D-MODE"),
    _mutant("dropout of weights in eval mode", _toy(attend=AlwaysDrops), "D-MODE"),
    _mutant("given positions doubled", lambda: GivenPositions("sinusoidal"), "D-LAYER"),
    _mutant("given positions doubled, rotation", GivenPositions, "D-LAYER"),
    _mutant("norm over tokens", OverTokens, "D-CAUSAL", expected={"causal": True}),
    _mutant("mean over rows", OverRows, "D-BATCH"),
    _mutant("mean with padding", lambda: PadsIncluded("rope", causal=False), "D-PAD",
            expected=_BOTH),
    _mutant("causal mask missing", _toy(attend=NoMask), "D-CAUSAL"),
    _mutant("causal mask missing in layer 1", _toy(attend=[Attend, NoMask]),
            "D-CAUSAL"),
    _mutant("mask multiplied", _toy(attend=Multiplied), "D-CAUSAL"),
    _mutant("mask shows the next token", _toy(attend=OneAhead), "D-CAUSAL"),
    _mutant("mask hides the diagonal", _toy(attend=NoDiagonal), "D-CAUSAL"),
    _mutant("padding ignored in layer 1",
            _toy(causal=False, attend=[Attend, IgnoresMask]), "D-PAD", expected=_BOTH),
    _mutant("rotation in layer 0 only", _toy(attend=[Attend, NoRotation]), "D-LAYER",
            expected={"enters": "in every layer"}),
    _mutant("rotation lost", _toy(attend=NoRotation), "D-ORDER",
            expected={"scheme": "rope"}),
    _mutant("rotation ignores positions", _toy(attend=OwnCount), "D-ORDER"),
    _mutant("angles of the first length", _toy(attend=OldAngles), "D-HISTORY"),
    _mutant("rotation in 16 bits", _toy(attend=AnglesIn16), "D-DTYPE"),
    _mutant("sinusoids never added", _toy("none"), "D-ORDER", expected=_SIN),
    _mutant("table along the batch, no mask taken", lambda: styles.Nano("batch"),
            "D-ORDER", "D-BATCH"),
    _mutant("heads cut by a view", lambda: styles.Nano("view"), "D-CAUSAL",
            expected={"causal": True}),
    _mutant("wrong corner of the mask", lambda: styles.Nano("corner"), "D-CAUSAL"),
    _mutant("mask inverted", lambda: styles.Nano("inverted"), "D-CAUSAL"),
    _mutant("mask of −1", lambda: styles.Nano("one"), "D-CAUSAL",
            expected={"causal": True}),
    *(_mutant(f"table of positions: {bug}", partial(styles.Rows, bug), check)
      for bug, check in (("first", "D-ORDER"), ("clamp", "D-LEN"), ("wrap", "D-LEN"))),
    _mutant("cache in a dict, decoding starts at 0", styles.InDict, "D-CACHE"),
    *(_mutant(f"cache inside: {bug}", partial(styles.Stateful, bug), "D-CACHE")
      for bug in ("restart", "slot", "chunk")),
    _mutant("cache inside: full, and silent", lambda: styles.Stateful(check=False),
            "D-LEN"),
    _mutant("angles in the dtype of a buffer", lambda: styles.Buffered("16"),
            "D-DTYPE"),
    _mutant("table that ends in zeros", lambda: styles.Buffered("ends"), "D-LEN"),
    _mutant("values rotated", _toy(attend=styles.TurnsValues), "D-SHIFT", "D-CACHE",
            expected={"scheme": "rope"}),
    _mutant("hidden scores of −3 in layer 1", _toy(attend=[Attend, styles.Weak]),
            "D-CAUSAL"),
    _mutant("NaN of padding spreads", _toy(attend=styles.Infinite), "D-PAD"),
    _mutant("scale by the length", _toy(attend=styles.Sharper), "D-CAUSAL"),
    _mutant("cache of eight tokens", _toy(attend=styles.KeepsEight), "D-CACHE"),
    _mutant("cache rounded to 16 bits", _toy(attend=styles.Coarse), "D-CACHE"),
    _mutant("outputs one place early", styles.EarlyOutputs, "D-CAUSAL"),
    _mutant("inputs rolled around", styles.Rolled, "D-CAUSAL"),
    _mutant("convolution sees one ahead", lambda: styles.Convolution(1, 1), "D-CAUSAL",
            expected={"causal": True}),
)  # fmt: skip


def _ours(encoding: Callable[[], Any], **given: Any) -> Callable[[], Any]:
    def make() -> Any:
        return pe_lab.Transformer(
            VOCABULARY, WIDTH, HEADS, 2, encoding=encoding(), **given
        )

    return make


def _summed() -> Any:
    """nn.TransformerEncoder after sinusoids, over ids."""
    embed, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True)
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def run(ids: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        x = embed(ids) + sinusoid(torch.arange(ids.size(1))).to(embed.weight.dtype)
        return head(stack(x, src_key_padding_mask=padding_mask))

    return run


def _small(name: str, config: str, **given: Any) -> Callable[[], Any]:
    """A tiny model of transformers with random weights."""

    def make() -> Any:
        import transformers

        sizes = {
            "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4,
        } | given  # fmt: skip
        made = getattr(transformers, config)(**sizes)
        return getattr(transformers, name)(made)

    return make


_D = WIDTH // HEADS
_NONE, _RELATIVE, _ABSOLUTE = ({"scheme": s} for s in ("none", "relative", "absolute"))
_SCHEMES: tuple[tuple[str, Callable[[], Any], dict[str, Any]], ...] = (
    ("NoPE", lambda: pe_lab.NoPE(), _NONE),
    ("sinusoids", lambda: pe_lab.Sinusoidal(WIDTH), _ABSOLUTE),
    (
        "sinusoids in halves",
        lambda: pe_lab.Sinusoidal(WIDTH, order="halves"),
        _ABSOLUTE,
    ),
    ("learned table", lambda: pe_lab.Learned(48, WIDTH), _ABSOLUTE),
    ("rotation", lambda: pe_lab.RoPE(_D), _RELATIVE),
    (
        "rotation with a gain",
        lambda: pe_lab.RoPE(_D, gain=1.2, layout="interleaved"),
        _RELATIVE,
    ),
    ("symmetric ALiBi", lambda: pe_lab.ALiBi(HEADS, symmetric=True), _RELATIVE),
    ("Shaw", lambda: pe_lab.Shaw(_D, 4), _RELATIVE),
    ("Transformer-XL", lambda: pe_lab.TransformerXL(HEADS, _D), _RELATIVE),
    ("KERPLE", lambda: pe_lab.Kerple(HEADS), _RELATIVE),
    ("FIRE", lambda: pe_lab.Fire(HEADS), {}),
    ("TUPE", lambda: pe_lab.TUPE(48, WIDTH, HEADS), {}),
)
_PEERS = (
    Healthy("GPT-2", "model", _small("GPT2LMHeadModel", "GPT2Config"), _ABSOLUTE),
    Healthy("OPT", "model",
            _small("OPTForCausalLM", "OPTConfig", ffn_dim=64, word_embed_proj_dim=32,
                   max_position_embeddings=64), _ABSOLUTE),
    Healthy("Llama", "model",
            _small("LlamaForCausalLM", "LlamaConfig", intermediate_size=64,
                   num_key_value_heads=2), _RELATIVE),
    Healthy("Mistral with a window", "model",
            _small("MistralForCausalLM", "MistralConfig", intermediate_size=64,
                   num_key_value_heads=2, sliding_window=5), _RELATIVE),
    Healthy("GPT-NeoX, partial rotation", "model",
            _small("GPTNeoXForCausalLM", "GPTNeoXConfig", intermediate_size=64),
            _RELATIVE),
    Healthy("BLOOM", "model", _small("BloomForCausalLM", "BloomConfig"), _RELATIVE),
    Healthy("Falcon with ALiBi", "model",
            _small("FalconForCausalLM", "FalconConfig", alibi=True), _RELATIVE),
    Healthy("BERT", "model", _small("BertModel", "BertConfig", intermediate_size=64),
            _ABSOLUTE | {"causal": False, "offset": 0}),
    Healthy("RoBERTa, from 2 on", "model",
            _small("RobertaModel", "RobertaConfig", intermediate_size=64),
            _ABSOLUTE | {"causal": False, "offset": 2}),
    Healthy("DeBERTa, both kinds", "model",
            _small("DebertaV2Model", "DebertaV2Config", intermediate_size=64,
                   relative_attention=True, pos_att_type=["c2p", "p2c"])),
    Healthy("T5's encoder", "model",
            _small("T5EncoderModel", "T5Config", d_model=32, d_kv=8, d_ff=64,
                   num_layers=2, num_heads=4), _RELATIVE | {"causal": False}),
    Healthy("Gemma 3, windows and two bases", "model",
            _small("Gemma3ForCausalLM", "Gemma3TextConfig", intermediate_size=64,
                   num_key_value_heads=2, head_dim=8, sliding_window=4), _RELATIVE),
    Healthy("SmolLM3, rotation in turns", "model",
            _small("SmolLM3ForCausalLM", "SmolLM3Config", intermediate_size=64,
                   num_key_value_heads=2, no_rope_layer_interval=2, pad_token_id=0),
            _RELATIVE),
)  # fmt: skip
HEALTHY = (
    *(Healthy(f"{name}, {kind}", "model", _ours(encoding, kind=kind),
              identity | {"causal": kind == "decoder"})
      for kind in ("decoder", "encoder") for name, encoding, identity in _SCHEMES),
    Healthy("xPos, decoder", "model", _ours(lambda: pe_lab.XPos(_D)), _RELATIVE),
    Healthy("ALiBi, decoder", "model", _ours(lambda: pe_lab.ALiBi(HEADS)), _RELATIVE),
    Healthy("T5 bias, decoder", "model",
            _ours(lambda: pe_lab.T5Bias(HEADS, bidirectional=False)), _RELATIVE),
    Healthy("T5 bias, encoder", "model",
            _ours(lambda: pe_lab.T5Bias(HEADS), kind="encoder"), _RELATIVE),
    Healthy("post-norm", "model",
            _ours(lambda: pe_lab.Sinusoidal(WIDTH), norm="post", dropout=0.1),
            _ABSOLUTE),
    *(Healthy(f"toy with {scheme}", "model", _toy(scheme), identity)
      for scheme, identity in (("rope", _RELATIVE), ("alibi", _RELATIVE),
                               ("none", _NONE), ("sinusoidal", _ABSOLUTE),
                               ("learned", _ABSOLUTE))),
    Healthy("√d once", "model", lambda: Scaled(WIDTH**0.5), _ABSOLUTE,
            {"expected": _BALANCE}),
    Healthy("packed documents", "model", lambda: Packed("learned", True, True)),
    Healthy("nn.TransformerEncoder after sinusoids", "model", _summed,
            _ABSOLUTE | {"causal": False}),
    Healthy("block of a fixed size", "model", styles.Nano, _ABSOLUTE),
    Healthy("cache inside", "model", styles.Stateful, {"causal": True}),
    Healthy("table in a buffer", "model", styles.Buffered, _ABSOLUTE),
    Healthy("causal convolution", "model", lambda: styles.Convolution(2, 0)),
    Healthy("convolution", "model", lambda: styles.Convolution(1, 1)),
    Healthy("recurrent", "model", styles.Recurrent),
    Healthy("norms and layers in lists", "model", styles.FlatALiBi,
            {"scheme": "relative", "causal": True}),
    Healthy("local window", "model", _toy(causal=False, attend=styles.Window),
            _RELATIVE, {"expected": {"causal": False}}),
    Healthy("two bases", "model", _toy(attend=[Attend, styles.Local]), _RELATIVE),
    Healthy("in float64", "model", lambda: _ours(lambda: pe_lab.RoPE(_D))().double(),
            _RELATIVE),
    Healthy("in bfloat16", "model",
            lambda: _ours(lambda: pe_lab.RoPE(_D))().bfloat16()),
    Healthy("a table in bfloat16", "model",
            lambda: _ours(lambda: pe_lab.Learned(48, WIDTH))().bfloat16()),
    Healthy("left in train mode", "model",
            lambda: _ours(lambda: pe_lab.Sinusoidal(WIDTH), dropout=0.3)().train(),
            _ABSOLUTE),
    Healthy("table of 9 rows", "model", _ours(lambda: pe_lab.Learned(9, WIDTH)),
            _ABSOLUTE),
    Healthy("table of 6 rows", "model", _ours(lambda: pe_lab.Learned(6, WIDTH)),
            _ABSOLUTE),
    Healthy("five tokens", "model",
            lambda: pe_lab.Transformer(5, WIDTH, HEADS, 2, encoding=pe_lab.RoPE(_D)),
            _RELATIVE),
    *(_PEERS if find_spec("transformers") else ()),
)  # fmt: skip
