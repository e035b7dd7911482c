"""XLNet's two streams: nobody sees the token it predicts, in whatever order."""

import math

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch import Tensor

import pe_lab
from pe_lab import (
    MultiHeadAttention,
    TwoStreamTransformer,
    factorization_order,
    stream_masks,
    two_stream_attention,
)

D, H, V = 16, 2, 11
EXACT = 1e-12  # float64, widths of 16: sums of at most a few hundred terms near 1

SCHEMES = {
    "TransformerXL": lambda: pe_lab.TransformerXL(H, D // H),
    "RoPE": lambda: pe_lab.RoPE(D // H),
    "ALiBi": lambda: pe_lab.ALiBi(H, symmetric=True),
    "T5Bias": lambda: pe_lab.T5Bias(H, bidirectional=True),
    "Shaw": lambda: pe_lab.Shaw(D // H, 3),
    "Sinusoidal": lambda: pe_lab.Sinusoidal(D),
    "Learned": lambda: pe_lab.Learned(40, D),
}


def build(name="TransformerXL", layers=2, dtype=torch.float64, norm="post"):
    torch.manual_seed(0)
    model = TwoStreamTransformer(V, D, H, layers, encoding=SCHEMES[name](), norm=norm)
    return model.to(dtype).eval()


def tokens(batch: int, length: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(V, (batch, length), generator=generator)


def permutations(least=2, most=8):
    return st.integers(least, most).flatmap(lambda n: st.permutations(range(n)))


def by_hand(order: list[int], predict: int, joint: bool) -> tuple[list, list]:
    """Both masks by looking up, for each pair, who comes first."""
    length, context = len(order), set(order[: len(order) - predict])
    content = [[False] * length for _ in range(length)]
    query = []
    for i in range(length):
        for j in range(length):
            together = joint and i in context and j in context
            content[i][j] = together or order.index(j) <= order.index(i)
    for i in order[length - predict :]:
        query.append([order.index(j) < order.index(i) for j in range(length)])
    return content, query


# --- orders -------------------------------------------------------------------------


@given(length=st.integers(1, 30), seed=st.integers(0, 2**31))
def test_an_order_is_a_permutation_and_repeats_with_its_seed(length, seed):
    first, second = (
        factorization_order(length, torch.Generator().manual_seed(seed))
        for _ in range(2)
    )
    assert torch.equal(first, second) and first.dtype == torch.int64
    assert torch.equal(first.sort().values, torch.arange(length))


def test_every_order_is_as_likely_as_any_other():
    """6000 draws of 3! orders: χ² with 5 degrees of freedom is below 20.5 in 999 of
    1000 samples, and this one is fixed.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = [tuple(factorization_order(3, generator).tolist()) for _ in range(6000)]
    counts = torch.tensor([drawn.count(o) for o in sorted(set(drawn))])
    assert len(counts) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5


def test_orders_of_a_batch_differ_and_put_padding_first():
    mask = torch.ones(4, 12, dtype=torch.bool)
    mask[1, 9:] = mask[2, :5] = False
    order = factorization_order(12, torch.Generator().manual_seed(0), mask=mask)
    assert len({tuple(row) for row in order.tolist()}) == 4
    assert torch.equal(order.sort(dim=-1).values, torch.arange(12).expand(4, 12))
    turns = mask.gather(1, order)  # padding, then what is real
    assert torch.equal(turns, turns.sort(dim=-1).values)


# --- masks --------------------------------------------------------------------------


@given(order=permutations(1), data=st.data(), joint=st.booleans())
def test_masks_equal_a_look_up_of_who_comes_first(order, data, joint):
    predict = data.draw(st.integers(1, len(order)))
    content, query = stream_masks(
        torch.tensor(order), predict=predict, joint_context=joint
    )
    assert content.dtype == query.dtype == torch.bool
    assert (content.tolist(), query.tolist()) == by_hand(order, predict, joint)


def test_masks_of_the_worked_order():
    """The paper's example, 3, 2, 4, 1 counted from 1, written out."""
    content, query = stream_masks(torch.tensor([2, 1, 3, 0]))
    assert content.int().tolist() == [
        [1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 1, 1],
    ]  # fmt: skip
    assert query.int().tolist() == [
        [0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 1, 0], [0, 1, 1, 1],
    ]  # fmt: skip


@given(order=permutations(), memory=st.integers(0, 3))
def test_memory_is_seen_by_all_and_padding_by_none(order, memory):
    length, order = len(order), torch.tensor(order)
    mask = torch.ones(2, memory + length, dtype=torch.bool)
    mask[1, 0] = mask[0, -1] = False
    bare = stream_masks(order)
    for seen, alone in zip(
        stream_masks(order, memory=memory, mask=mask), bare, strict=True
    ):
        assert seen.shape == (2, 1, length, memory + length)
        whole = torch.cat((torch.ones(length, memory, dtype=torch.bool), alone), 1)
        assert torch.equal(seen, whole & mask[:, None, None, :])


def test_masks_of_per_row_orders_are_those_of_each_row():
    orders = torch.tensor([[2, 0, 1], [0, 1, 2]])
    together = stream_masks(orders, predict=2, memory=1)
    for b, order in enumerate(orders):
        for seen, alone in zip(
            together, stream_masks(order, predict=2, memory=1), strict=True
        ):
            assert torch.equal(seen[b, 0], alone)


@pytest.mark.parametrize("predict", [1, 3, 7])
def test_masks_are_xlnets_released_convention(predict):
    """perm_mask as `_local_perm` of the released data_utils.py makes it: index −1 for
    what is not predicted, and for what is its own index one lower than its turn.
    """
    order = factorization_order(7, torch.Generator().manual_seed(predict))
    index = order.argsort()
    is_target = torch.zeros(7, dtype=torch.bool)
    is_target[order[-predict:]] = True
    index = torch.where(is_target, index, -1)
    own = torch.where(is_target, index, index + 1)
    perm_mask = (own[:, None] <= index[None, :]) & is_target[None, :]  # 1: hidden
    content, query = stream_masks(order, predict=predict, joint_context=True)
    assert torch.equal(query, ~perm_mask[order[-predict:]])
    own_place = torch.eye(7, dtype=torch.bool)
    assert torch.equal(content, ~(perm_mask & ~own_place))


# --- what the streams may know ------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("name", SCHEMES)
@settings(max_examples=8)
@given(order=permutations(3, 7), data=st.data())
def test_no_stream_knows_what_comes_later(name, norm, order, data):
    """Bit for bit: one token changes, and what comes before it in the order does not;
    of that token itself h knows the token and g does not.
    """
    model, ids = build(name, norm=norm), tokens(1, len(order))
    turn = data.draw(st.integers(0, len(order) - 1))
    changed = ids.clone()
    changed[0, order[turn]] = (ids[0, order[turn]] + 1) % V
    places = torch.tensor(order)
    (h, g, _), (h2, g2, _) = (model.streams(x, places) for x in (ids, changed))
    h, h2 = h[:, places], h2[:, places]  # in the order, as g is
    assert torch.equal(h[:, :turn], h2[:, :turn])
    assert torch.equal(g[:, : turn + 1], g2[:, : turn + 1])
    assert ((h - h2)[:, turn:].abs().amax(-1) > 1e-9).all()
    assert ((g - g2)[:, turn + 1 :].abs().amax(-1) > 1e-9).all()


def test_gradients_flow_from_what_is_seen_only():
    """∂g_i/∂h_j is exactly zero unless j is earlier than i, ∂h_i/∂h_j unless no later."""
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.manual_seed(0)
    attend = MultiHeadAttention(D, H).double()
    encoding = pe_lab.TransformerXL(H, D // H).double()
    x = torch.randn(1, 5, D, dtype=torch.float64, requires_grad=True)
    w = torch.randn(1, 5, D, dtype=torch.float64)
    masks = stream_masks(order)
    h, g = two_stream_attention(attend, x, w, masks, order, encoding=encoding)
    for rows, seen in zip((h, g), masks, strict=True):
        for i in range(5):
            (slope,) = torch.autograd.grad(rows[0, i].sum(), x, retain_graph=True)
            assert torch.equal(slope[0].abs().sum(-1) > 0, seen[i])


def test_joint_context_changes_the_context_and_still_hides_the_targets():
    model, ids = build(), tokens(1, 6)
    order, changed = torch.tensor([5, 1, 0, 3, 2, 4]), ids.clone()
    changed[0, [2, 4]] += 1
    h, g, _ = model.streams(ids, order, predict=2, joint_context=True)
    h2, g2, _ = model.streams(changed % V, order, predict=2, joint_context=True)
    apart, _, _ = model.streams(ids, order, predict=2)
    context = order[:4]
    assert torch.equal(h[:, context], h2[:, context]) and torch.equal(g[:, 0], g2[:, 0])
    assert not torch.allclose(
        h[:, 5], apart[:, 5]
    )  # the first: it sees the other three
    assert torch.allclose(h[:, 4], h2[:, 4]) is False


def test_without_position_g_cannot_tell_two_targets_apart():
    """The same context, another place to fill: with a scheme the prediction differs."""
    ids = tokens(1, 5)
    orders = torch.tensor([[0, 3, 1, 2, 4], [0, 3, 1, 4, 2]])[:, :5]
    for encoding, same in ((None, True), (pe_lab.TransformerXL(H, D // H), False)):
        torch.manual_seed(0)
        model = TwoStreamTransformer(V, D, H, 2, encoding=encoding).double()
        g = [model.streams(ids, o, predict=2)[1][0, 0] for o in orders]
        assert torch.allclose(*g, rtol=0, atol=EXACT) == same


@settings(max_examples=6)
@given(order=st.permutations(range(4)))
def test_predictions_in_any_order_make_one_distribution(order):
    """Π_t p(x[order[t]] | earlier) over all 3⁴ texts sums to 1: a token that saw itself
    or a later one would break it.
    """
    torch.manual_seed(0)
    model = TwoStreamTransformer(3, D, H, 2, encoding=SCHEMES["TransformerXL"]())
    model, order = model.double(), torch.tensor(order)
    texts = torch.cartesian_prod(*[torch.arange(3)] * 4)
    _, g, _ = model.streams(texts, order)
    log_p = model.head(g).log_softmax(-1).gather(-1, texts[:, order, None])
    assert math.isclose(log_p.sum((1, 2)).exp().sum().item(), 1, abs_tol=1e-12)


# --- what they are equal to ---------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMES)
def test_in_the_order_of_the_text_content_is_causal_attention(name):
    """And the query of i attends as causal attention does from w with i hidden."""
    torch.manual_seed(0)
    attend, encoding = MultiHeadAttention(D, H).double(), SCHEMES[name]().double()
    x, w = torch.randn(2, 2, 6, D, dtype=torch.float64)
    order = torch.arange(6)
    h, g = two_stream_attention(
        attend, x, w, stream_masks(order), order, encoding=encoding
    )
    assert torch.allclose(h, attend(x, causal=True, encoding=encoding), 0, EXACT)
    for i in range(1, 6):
        alone = attend(
            w[:, i : i + 1], x[:, :i], encoding=encoding, q_pos=order[i : i + 1],
            k_pos=order[:i],
        )  # fmt: skip
        assert torch.allclose(g[:, i : i + 1], alone, 0, EXACT)


def test_in_the_order_of_the_text_the_content_stream_is_the_decoder():
    model, ids = build(), tokens(2, 7)
    decoder = pe_lab.Transformer(
        V, D, H, 2, kind="decoder", encoding=SCHEMES["TransformerXL"](), norm="post"
    )
    weights = {name: w for name, w in model.state_dict().items() if name != "w"}
    decoder.load_state_dict(weights)
    h, _, _ = model.streams(ids, torch.arange(7))
    assert torch.allclose(h, decoder.double().hidden(ids), 0, EXACT)


def test_without_an_order_the_model_is_an_ordinary_encoder():
    """All of the context at once, and nothing predicted but one: its last row aside,
    h is what the encoder makes of a text without it.
    """
    model, ids = build(), tokens(2, 7)
    h, _, _ = model.streams(ids, torch.arange(7), predict=1, joint_context=True)
    assert torch.allclose(h[:, :6], model.hidden(ids[:, :6]), 0, EXACT)


@given(order=permutations(), data=st.data())
@settings(max_examples=20)
def test_partial_prediction_is_the_end_of_the_full_one(order, data):
    model, ids, order = build(), tokens(2, len(order)), torch.tensor(order)
    predict = data.draw(st.integers(1, len(order)))
    h, g, _ = model.streams(ids, order)
    h2, g2, _ = model.streams(ids, order, predict=predict)
    assert torch.allclose(h, h2, 0, EXACT)
    assert torch.allclose(g[:, -predict:], g2, 0, EXACT)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("name", SCHEMES)
def test_segments_with_memory_are_one_pass(name, norm):
    """Three segments, each in an order of its own; the orders one after the other."""
    model, ids = build(name, norm=norm), tokens(2, 12)
    orders = [
        factorization_order(4, torch.Generator().manual_seed(i)) for i in range(3)
    ]
    whole = torch.cat([order + 4 * i for i, order in enumerate(orders)])
    h, g, _ = model.streams(ids, whole)
    memory = None
    for i, order in enumerate(orders):
        part = slice(4 * i, 4 * i + 4)
        h2, g2, memory = model.streams(ids[:, part], order, memory=memory)
        assert torch.allclose(h[:, part], h2, 0, EXACT)
        assert torch.allclose(g[:, part], g2, 0, EXACT)
    assert [m.shape for m in memory] == [(2, 12, D)] * 2
    assert not any(m.requires_grad for m in memory)


def test_memory_may_be_cut_to_its_last_tokens():
    """One layer: its memory is the embedded tokens, so cut memory is a shorter past."""
    model, ids, order = build(layers=1), tokens(1, 8), torch.tensor([2, 0, 1, 3])
    _, _, memory = model.streams(ids[:, :4], order)
    h, g, _ = model.streams(ids[:, 4:], order, memory=[m[:, -2:] for m in memory])
    _, _, memory = model.streams(ids[:, 2:4], order[:0].new_tensor([1, 0]))
    h2, g2, _ = model.streams(ids[:, 4:], order, memory=memory)
    assert torch.allclose(h, h2, 0, EXACT) and torch.allclose(g, g2, 0, EXACT)


# --- rows ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMES)
def test_rows_are_on_their_own(name):
    """Each row with its own order, padding and ids: as if it were alone and unpadded,
    and permuted rows give permuted results.
    """
    model, lengths = build(name), [7, 4, 5]
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, :3] = mask[2, 5:] = False
    order = factorization_order(7, torch.Generator().manual_seed(3), mask=mask)
    ids, places = tokens(3, 7), pe_lab.positions.from_mask(mask)
    arguments = {"predict": 3, "positions": places, "mask": mask}
    h, g, _ = model.streams(ids, order, **arguments)
    for b, n in enumerate(lengths):
        real = mask[b].nonzero().flatten()
        alone = order[b, 7 - n :] - real[0]
        h1, g1, _ = model.streams(ids[b : b + 1, real], alone, predict=3)
        assert torch.allclose(h[b : b + 1, real], h1, 0, EXACT)
        assert torch.allclose(g[b : b + 1], g1, 0, EXACT)
    turned = torch.tensor([2, 0, 1])
    arguments |= {"positions": places[turned], "mask": mask[turned]}
    h2, g2, _ = model.streams(ids[turned], order[turned], **arguments)
    assert torch.allclose(h[turned], h2, 0, EXACT)
    assert torch.allclose(g[turned], g2, 0, EXACT)


# --- XLNet --------------------------------------------------------------------------


def sines_first(offsets: Tensor) -> Tensor:
    """XLNet's table of offsets, in float64: all sines, then all cosines."""
    angles = offsets[:, None] * pe_lab.inv_freq(D)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)[:, None]


def xlnet(layers: int, dtype: torch.dtype):
    """An XLNet with random weights, its layers sharing what relates to position."""
    module = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    torch.manual_seed(2)
    config = module.XLNetConfig(
        vocab_size=V, d_model=D, n_layer=layers, n_head=H, d_inner=24,
        layer_norm_eps=1e-5, mem_len=64,
    )  # fmt: skip
    model = module.XLNetModel(config).to(dtype).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    for layer in model.layer:
        for name in ("r", "r_w_bias", "r_r_bias"):
            setattr(layer.rel_attn, name, getattr(model.layer[0].rel_attn, name))
    if dtype == torch.float64:  # it makes its own table in float32
        model.relative_positional_encoding = lambda q, k, bsz, device: sines_first(
            torch.arange(k, -q, -1, dtype=torch.float64)
        ).expand(-1, bsz, -1)
    return model


@torch.no_grad()
def converted(theirs, layers: int, dtype: torch.dtype) -> TwoStreamTransformer:
    """Our model with XLNet's weights: (d_model, H, head_dim) there is Linear here."""
    ours = TwoStreamTransformer(
        V, D, H, layers, encoding=pe_lab.TransformerXL(H, D // H), d_ff=24
    )
    ours = ours.to(dtype).eval()
    ours.embed.weight.copy_(theirs.word_embedding.weight / ours.embed.scale)
    ours.w.copy_(theirs.mask_emb.flatten())
    first = theirs.layer[0].rel_attn
    ours.encoding.weight.copy_(first.r.permute(1, 2, 0))
    ours.encoding.u.copy_(first.r_w_bias[:, None])
    ours.encoding.v.copy_(first.r_r_bias[:, None])
    for layer, their in zip(ours.stack.layers, theirs.layer, strict=True):
        for name in "qkvo":
            linear, weight = (
                getattr(layer.attend, f"w_{name}"),
                getattr(their.rel_attn, name),
            )
            flat = weight.flatten(1)
            linear.weight.copy_(flat if name == "o" else flat.T)
            linear.bias.zero_()
        feed = their.ff
        pairs = (
            (layer.norms[0], their.rel_attn.layer_norm), (layer.norms[1], feed.layer_norm),
            (layer.feed[0], feed.layer_1), (layer.feed[2], feed.layer_2),
        )  # fmt: skip
        for mine, other in pairs:
            mine.load_state_dict(other.state_dict())
    return ours


def perm_mask(order: Tensor, predict: int, joint: bool, dtype: torch.dtype) -> Tensor:
    """(1, L, L), 1 where i cannot attend j; XLNet lets content see itself anyway."""
    content, query = stream_masks(order, predict=predict, joint_context=joint)
    hidden = ~content
    hidden[order[-predict:]] = ~query
    return hidden.to(dtype)[None]


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)]
)
def test_both_streams_and_memory_equal_xlnets(dtype, tolerance, joint):
    """The model of transformers with its own relative shift, `perm_mask` and
    `target_mapping`, two layers, a second segment with memory. Outputs are layer norms
    times weights near 0.5, so tolerances are absolute.
    """
    theirs = xlnet(2, dtype)
    ours, ids = converted(theirs, 2, dtype), tokens(2, 14)
    mems = memory = None
    for seed, part in enumerate((slice(0, 6), slice(6, 14))):
        length = part.stop - part.start
        order = factorization_order(length, torch.Generator().manual_seed(seed))
        mapping = F.one_hot(order[-3:], length).to(dtype)
        out = theirs(
            ids[:, part], mems=mems, target_mapping=mapping.expand(2, -1, -1),
            perm_mask=perm_mask(order, 3, joint, dtype).expand(2, -1, -1),
            use_mems=True, output_hidden_states=True,
        )  # fmt: skip
        h, g, memory = ours.streams(
            ids[:, part], order, predict=3, joint_context=joint, memory=memory
        )
        mems = out.mems
        assert (out.last_hidden_state - g).abs().max() <= tolerance
        assert (out.hidden_states[-2] - h).abs().max() <= tolerance
        for kept, their in zip(memory, mems, strict=True):
            assert (kept - their.transpose(0, 1)).abs().max() <= tolerance


def test_fine_tuned_xlnet_is_the_content_stream_alone():
    """No perm_mask, no target_mapping, and padding: an encoder with relative scores."""
    theirs = xlnet(2, torch.float64)
    ours, ids = converted(theirs, 2, torch.float64), tokens(2, 6)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, :2] = False
    out = theirs(ids, attention_mask=mask.double()).last_hidden_state
    # a padded query may see itself in XLNet; what it makes is read by nobody
    assert (out - ours.hidden(ids, mask=mask))[mask].abs().max() <= 1e-10


def test_xlnet_predicts_the_first_of_an_order_from_everything():
    """Where nothing may be seen, −1e30 on every score is a uniform look at all tokens,
    the one to predict among them. Ours looks nowhere.
    """
    theirs = xlnet(1, torch.float64)
    ours, order = converted(theirs, 1, torch.float64), torch.tensor([2, 0, 1, 3])
    ids, changed = tokens(1, 4), tokens(1, 4)
    changed[0, 2] = (ids[0, 2] + 1) % V
    mapping = F.one_hot(order, 4).double()[None]
    hidden = perm_mask(order, 4, False, torch.float64)
    their = [
        theirs(x, perm_mask=hidden, target_mapping=mapping)[0] for x in (ids, changed)
    ]
    our = [ours.streams(x, order)[1] for x in (ids, changed)]
    assert (their[0] - their[1])[:, 0].abs().max() > 1e-3
    assert torch.equal(our[0][:, 0], our[1][:, 0])
    assert (their[0] - our[0])[:, 1:].abs().max() <= 1e-10


# --- numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["TransformerXL", "Shaw", "RoPE"])
def test_gradients_of_both_streams(name):
    """gradcheck at its own tolerances, the first of the order, who looks nowhere,
    included.
    """
    torch.manual_seed(0)
    attend, encoding = MultiHeadAttention(D, H).double(), SCHEMES[name]().double()
    order = torch.tensor([1, 2, 0])
    inputs = [torch.randn(1, n, D, dtype=torch.float64) for n in (3, 3, 2)]

    def both(h, g, memory):
        masks = stream_masks(order, memory=2)
        with_memory = two_stream_attention(
            attend, h, g, masks, order, encoding=encoding, memory=memory
        )
        alone = two_stream_attention(
            attend, h, g, stream_masks(order), order, encoding=encoding
        )
        return *with_memory, *alone

    assert torch.autograd.gradcheck(both, [x.requires_grad_() for x in inputs])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_dtypes_stay_near_float64(dtype):
    """Three layer norms on the way, so a few tens of roundings of numbers near 1."""
    ids, order = tokens(2, 9), factorization_order(9, torch.Generator().manual_seed(0))
    exact = build().streams(ids, order)[:2]
    for found, wanted in zip(
        build(dtype=dtype).streams(ids, order), exact, strict=False
    ):
        assert found.dtype == dtype
        assert (found - wanted).abs().max() <= 40 * torch.finfo(dtype).eps


def test_autocast_compile_inference_and_meta():
    model = build(dtype=torch.float32)
    ids, order = tokens(2, 6), torch.tensor([4, 0, 5, 1, 3, 2])
    h, g, memory = model.streams(ids, order, predict=2)
    with torch.autocast("cpu", torch.bfloat16):
        _, coarse, kept = model.streams(ids, order, predict=2, memory=memory)
    assert coarse.isfinite().all() and kept[0].dtype == torch.float32
    with torch.inference_mode():  # where torch picks another kernel
        assert torch.allclose(model.streams(ids, order, predict=2)[1], g, atol=1e-6)
    compiled = torch.compile(model.streams, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(ids, order, predict=2)[1], g, atol=1e-6)
    on_meta = model.to("meta")
    h, g, _ = on_meta.streams(ids.to("meta"), order, predict=2)
    assert h.shape == (2, 6, D) and g.shape == (2, 2, D)


def test_a_tiny_model_learns_to_copy_in_any_order():
    """Texts a b a b a b: every token is known from the parity of its place, once one of
    its kind has been seen. From ln 11 = 2.4 the loss falls below 0.2.
    """
    torch.manual_seed(0)
    model = TwoStreamTransformer(V, 32, H, 2, encoding=pe_lab.TransformerXL(H, 16))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        ids = torch.randint(V, (32, 2), generator=generator).repeat(1, 3)
        order = factorization_order(6, generator, mask=torch.ones(32, 6).bool())
        _, g, _ = model.streams(ids, order, predict=2, joint_context=True)
        loss = F.cross_entropy(model.head(g).mT, ids.gather(1, order[:, -2:]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.2


# --- refusals -----------------------------------------------------------------------


@pytest.mark.parametrize("order", [[0, 0, 1], [1, 2, 3], [-1, 0, 1], [[0, 1], [1, 1]]])
def test_what_is_no_permutation_is_refused(order):
    with pytest.raises(ValueError, match="order needs each of 0 … "):
        stream_masks(torch.tensor(order))


def test_what_does_not_fit_is_refused_in_words():
    model, ids, order = build(), tokens(2, 4), torch.arange(4)
    memory = model.streams(ids, order)[2]
    cases = [
        (lambda: stream_masks(order.double()), "order needs whole numbers"),
        (lambda: stream_masks(order, predict=5), "predict needs at most the 4 tokens"),
        (lambda: stream_masks(order, mask=torch.ones(1, 3).bool()), "mask needs booleans"),
        (lambda: model.streams(ids, torch.arange(3)), "order needs one id"),
        (lambda: model.streams(ids, order, memory=memory[:1]), "memory needs the 2"),
        (lambda: model.streams(ids[:1], order, memory=memory), "memory needs the 2"),
        (lambda: model.streams(ids, order, positions=torch.arange(3)), "positions needs"),
        (lambda: factorization_order(0), "length needs a whole number"),
        (lambda: factorization_order(3, 7), "generator needs a torch.Generator"),
    ]  # fmt: skip
    for call, words in cases:
        with pytest.raises((TypeError, ValueError), match=words):
            call()
