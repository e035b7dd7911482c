"""Bugs of rotations, scaling rules and biases that were met in public, with right values.

A test's docstring names a report and says what went wrong there. What concerns ids is in
test_bugs_positions.py; graph breaks, lengths baked into an export and lost frequencies
are in test_export.py and test_states.py, where every scheme is asked.
"""

import math

import pytest
import torch

import pe_lab
from pe_lab import scaling

LAYOUTS = ["half", "interleaved"]


def turned(scheme, vector, position):
    """One vector at one position."""
    x = torch.as_tensor(vector).view(1, 1, 1, -1)
    ids = torch.tensor([position])
    return scheme.rotate(x, x, ids, ids)[0].flatten()


def unit(channel, dim):
    return torch.eye(dim)[channel]


def decoder(encoding, dtype=torch.float64):
    pe_lab.seed(0)
    model = pe_lab.Transformer(11, 16, 2, 2, encoding=encoding)
    return model.to(dtype).eval()


def tokens(length, batch=2):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(11, (batch, length), generator=generator)


def decoded(model, text, sizes):
    """Logits of a text that is read in pieces, and the last cache."""
    cache, out = None, []
    for piece in text.split(sizes, dim=1):
        logits, cache = model.extend(piece, cache)
        out.append(logits)
    return torch.cat(out, dim=1), cache


class TestCaches:
    def test_steps_of_one_length_are_turned_by_their_own_positions(self):
        """lucidrains/rotary-embedding-torch#11: the key of a cache was the length alone,
        and every step was turned as the first.
        """
        scheme = pe_lab.RoPE(2)
        for position in (0, 3, 1, 3):
            expected = [math.cos(position), math.sin(position)]
            assert turned(scheme, [1.0, 0.0], position).tolist() == pytest.approx(expected, abs=1e-7)  # fmt: skip
        assert turned(scheme, [1.0, 0.0], 3).tolist() == pytest.approx([-0.98999, 0.14112], abs=5e-6)  # fmt: skip

    def test_ids_grow_by_what_is_new_and_not_by_the_prompt_again(self):
        """skyzh/tiny-llm#46: after a prompt of 6 came 12 and 13 for 7 and 8."""
        _, cache = decoded(decoder(pe_lab.RoPE(8)), tokens(9), [6, 1, 1, 1])
        assert cache[0].positions[0].tolist() == list(range(9))

    def test_ids_past_256_are_counted_in_a_bfloat16_model(self):
        """keras-team/keras-hub#1544, pytorch/executorch#2010: a start of 257 became 256
        in the compute dtype, or 0.
        """
        model = decoder(pe_lab.RoPE(8), torch.bfloat16)
        _, cache = decoded(model, tokens(258, 1), [257, 1])
        assert cache[0].positions[0, -1] == 257
        _, whole = decoded(model, tokens(258, 1), [258])
        k, expected = (c[0].k[:, :, -1].double() for c in (cache, whole))
        assert torch.allclose(k, expected, rtol=2**-8, atol=1e-3)

    def test_a_table_is_bounded_by_the_end_of_a_chunk(self):
        """karpathy/nanochat#514, pegainfer-project/pegainfer#220: 7 past tokens and a
        chunk of 2 were held against a table of 8 rows one by one.
        """
        model = decoder(pe_lab.Learned(8, 16))
        _, cache = decoded(model, tokens(7), [7])
        with pytest.raises(IndexError, match="position 8 has no row in a table of 8"):
            model.extend(tokens(2), cache)
        free = decoder(pe_lab.RoPE(8))
        logits, _ = decoded(free, tokens(9), [7, 2])
        assert torch.allclose(logits, free(tokens(9)), rtol=0, atol=1e-12)

    def test_cached_keys_are_not_turned_again(self):
        """NeuraLegion/shainet#110: [1, 0] at 2 went on to [−0.654, −0.757], place 4."""
        assert turned(pe_lab.RoPE(2), [1.0, 0.0], 2).tolist() == pytest.approx([-0.416, 0.909], abs=5e-4)  # fmt: skip
        model = decoder(pe_lab.RoPE(8))
        _, early = decoded(model, tokens(4), [4])
        cache = early
        for step in range(3):
            _, cache = model.extend(tokens(3)[:, step : step + 1], cache)
        for before, after in zip(early, cache, strict=True):
            assert torch.equal(after.k[:, :, :4], before.k)

    @pytest.mark.parametrize(("dtype", "slack"), [(torch.float16, 0), (torch.float32, 1e-7)])  # fmt: skip
    def test_one_shift_rounds_once_and_a_hundred_shifts_a_hundred_times(
        self, dtype, slack
    ):
        """ggml-org/llama.cpp#4097, #12357: caches shifted by −1 again and again.

        R(−1)¹⁰⁰ = R(−100) holds to one rounding per shift, each at most ε/2 · |x|.
        """
        scheme = pe_lab.RoPE(64)
        generator = torch.Generator().manual_seed(0)
        key = torch.randn(64, generator=generator, dtype=torch.float64).to(dtype)
        exact = turned(scheme, key.double(), -100)
        shifted = key
        for _ in range(100):
            shifted = turned(scheme, shifted, -1)
        rounding = torch.finfo(dtype).eps / 2 * key.double().norm() + slack
        one, many = (
            (t.double() - exact).norm() for t in (turned(scheme, key, -100), shifted)
        )
        assert one <= rounding
        assert one < many <= 100 * rounding

    def test_dynamic_ntk_decodes_as_the_full_pass(self):
        """huggingface/transformers#25104, #24653: cached keys kept an older base, and
        were off by 1.7 at length 40. Here the length is told once.
        """
        rule = lambda w: scaling.dynamic_ntk(w, 2, length=40, original_length=16)  # noqa: E731
        model = decoder(pe_lab.RoPE(8, scaling=rule))
        logits, _ = decoded(model, tokens(40), [12] + [1] * 28)
        assert torch.allclose(logits, model(tokens(40)), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("length", [16, 17])
    def test_longrope_does_not_switch_within_a_generation(self, length):
        """huggingface/transformers#33129, ggml-org/llama.cpp#8995: gibberish from the
        first token past the trained length on.
        """
        rule = lambda w: scaling.longrope(w, [1.0] * 4, [4.0] * 4, length=length, original_length=16)  # noqa: E731  # fmt: skip
        model = decoder(pe_lab.RoPE(8, scaling=rule))
        logits, _ = decoded(model, tokens(20), [14] + [1] * 6)
        assert torch.allclose(logits, model(tokens(20)), rtol=0, atol=1e-12)

    def test_a_long_row_does_not_switch_the_factors_of_a_short_one(self):
        """transformers 5.24 takes the longest row of a batch: cos was off by 2.1."""
        rule = lambda w: scaling.longrope(w, [1.0] * 4, [4.0] * 4, length=4, original_length=16)  # noqa: E731  # fmt: skip
        scheme, x = pe_lab.RoPE(8, scaling=rule), torch.randn(2, 1, 3, 8)
        ids = torch.tensor([[0, 1, 2], [500, 501, 502]])
        together, _ = scheme.rotate(x, x, ids, ids)
        alone, _ = scheme.rotate(x[:1], x[:1], ids[0], ids[0])
        assert torch.equal(together[:1], alone)


class TestPrecision:
    def test_angles_are_not_made_in_the_dtype_of_the_model(self):
        """huggingface/transformers#29285, EleutherAI/gpt-neox#1003: 257 is 256 in
        bfloat16, and cos 257 = 0.819 became cos 256 = −0.040.
        """
        scheme = pe_lab.RoPE(2).to(torch.bfloat16)
        out = turned(scheme, torch.tensor([1.0, 0.0]).bfloat16(), 257)
        assert out[0].item() == pytest.approx(0.819, abs=2**-9)

    def test_one_pair_far_out_in_float16(self):
        """The same reports: pair 1 of d = 32 at 1857 turns by 1044.268 rad, not 1045."""
        scheme = pe_lab.RoPE(32, layout="interleaved").half()
        out = turned(scheme, unit(2, 32).half(), 1857)[2:4]
        expected = [math.cos(1044.268), math.sin(1044.268)]
        assert out.tolist() == pytest.approx(expected, abs=1e-3)

    @pytest.mark.parametrize("position", [2049, 65_520, 10**6])
    def test_float16_runs_out_of_neither_integers_nor_range(self, position):
        """NVIDIA/Megatron-LM#535: 2049 is 2048 there, and 65520 infinite, so NaN."""
        out = turned(pe_lab.RoPE(2).half(), torch.tensor([1.0, 0.0]).half(), position)
        assert out.tolist() == pytest.approx([math.cos(position), math.sin(position)], abs=2**-11)  # fmt: skip

    def test_tables_are_not_rounded_to_bfloat16(self):
        """KellerJordan/modded-nanogpt#39: that costs up to 2e-3 per entry, and 1e-3 of
        |q||k| in the scores' invariance.
        """
        scheme = pe_lab.RoPE(64).to(torch.bfloat16)
        x = torch.randn(1, 1, 300, 64, generator=torch.Generator().manual_seed(0))
        ids = torch.arange(300)
        exact, _ = scheme.rotate(x.double(), x.double(), ids, ids)
        error = (scheme.rotate(x, x, ids, ids)[0] - exact).abs().max()
        assert error <= 1e-6
        cos, sin = (
            t.bfloat16().float() for t in pe_lab.rope_table(ids, scheme.inv_freq)
        )
        coarse = pe_lab.apply_rope(x, cos, sin, layout="half")
        assert (coarse - exact).abs().max() > 1e-3

    def test_a_bfloat16_call_does_not_spoil_a_float32_call(self):
        """rotary-embedding-torch 0.9.1 makes positions in the dtype of q and keeps the
        angles: 7.5 off at length 1024, and so is the next float32 call.
        """
        scheme, ids = pe_lab.RoPE(64, layout="interleaved"), torch.arange(1024)
        x = torch.randn(1, 1, 1024, 64, generator=torch.Generator().manual_seed(0))
        exact, _ = scheme.rotate(x.double(), x.double(), ids, ids)
        coarse, _ = scheme.rotate(x.bfloat16(), x.bfloat16(), ids, ids)
        fine, _ = scheme.rotate(x, x, ids, ids)
        assert (coarse.double() - exact).abs().max() <= 2**-7 * 5
        assert (fine - exact).abs().max() <= 1e-6

    @pytest.mark.parametrize("length", [257, 1001])
    def test_sinusoids_survive_a_cast_of_the_model(self, length):
        """positional-encodings 6.0.3, x-transformers 2.31: rounded frequencies and
        positions, off by 0.53 at 257 and by 2.0 at 1001.
        """
        x = torch.zeros(1, length, 16)
        out = pe_lab.Sinusoidal(16).to(torch.bfloat16).embed(x, torch.arange(length))
        assert torch.equal(out[0], pe_lab.sinusoidal(length, 16))

    def test_a_shaw_bias_works_in_float16(self):
        """facebookresearch/fairseq#646: the module of relative positions crashed."""
        scheme = pe_lab.Shaw(8, 2).half()
        x = torch.randn(1, 2, 5, 8).half()
        out = pe_lab.attention(x, x, x, encoding=scheme)
        assert out.dtype == torch.float16
        assert out.isfinite().all()


def partner(scheme, channel, dim, places):
    """The other channel that a unit vector leaks into, and with which sine."""
    x = unit(channel, dim).expand(1, 1, 1, dim)
    out = scheme.rotate(x, x, places, places)[0].flatten().clone()
    out[channel] = 0
    at = out.abs().argmax().item()
    return at, out[at].item()


class TestLayout:
    def test_two_layouts_agree_at_the_origin_and_nowhere_else(self):
        """huggingface/transformers#25199, naklecha/llama3-from-scratch#20: position 0
        hides the wrong one.
        """
        q = [1.0, 0.0, 0.0, 0.0]
        half, adjacent = (pe_lab.RoPE(4, layout=layout) for layout in LAYOUTS)
        assert turned(half, q, 0).tolist() == turned(adjacent, q, 0).tolist() == q
        assert turned(half, q, 1).tolist() == pytest.approx(
            [0.540, 0, 0.841, 0], abs=5e-4
        )
        assert turned(adjacent, q, 1).tolist() == pytest.approx(
            [0.540, 0.841, 0, 0], abs=5e-4
        )

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_every_way_in_uses_one_layout(self, layout):
        """vllm-project/vllm#49290, #42016: text went right, and ids on three axes took
        a path with the other layout.
        """
        expected = 1 if layout == "interleaved" else 4
        one, row, cell = torch.tensor([1]), torch.tensor([[1]]), torch.tensor([[1]])
        ways = [
            (pe_lab.RoPE(8, layout=layout), one),
            (pe_lab.RoPE(8, layout=layout), row),
            (pe_lab.RoPE(16, rotary_dim=8, layout=layout), one),
            (pe_lab.XPos(8, layout=layout), one),
            (pe_lab.AxialRoPE(8, axes=1, layout=layout), cell),
        ]
        if layout == "half":
            ways.append((pe_lab.MRoPE(8, (2, 1, 1)), torch.ones(1, 3).long()))
        for scheme, places in ways:
            at, sine = partner(scheme, 0, scheme.head_dim, places)
            assert at == expected
            assert sine == pytest.approx(math.sin(1), rel=0.01)

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_both_channels_of_a_pair_turn_by_one_angle(self, layout):
        """Tongjilibo/bert4torch#1: angles tiled [c₀ c₁ c₀ c₁] over adjacent pairs. Norms
        change then, pair by pair.
        """
        x = torch.randn(1, 1, 9, 4, generator=torch.Generator().manual_seed(0))
        ids = torch.arange(9)
        out, _ = pe_lab.RoPE(4, layout=layout).rotate(x, x, ids, ids)
        channels = -2 if layout == "half" else -1
        before, after = (t.unflatten(-1, (2, 2)).norm(dim=channels) for t in (x, out))
        assert torch.allclose(after, before, rtol=1e-6)

    def test_heads_at_one_position_share_one_angle(self):
        """mlfoundations/open_lm#4: turned along the heads, head 0 stayed where it was.
        (batch, length, heads, channels) is refused wherever the two sizes differ.
        """
        scheme, ids = pe_lab.RoPE(8), torch.arange(5)
        x = torch.randn(1, 1, 5, 8).expand(1, 3, 5, 8)
        out, _ = scheme.rotate(x, x, ids, ids)
        assert (out == out[:, :1]).all()
        wrong = x.transpose(1, 2)
        with pytest.raises(ValueError, match="one id for each token"):
            scheme.rotate(wrong, wrong, ids, ids)


class TestScaling:
    def test_a_longer_text_leaves_the_base_of_a_shorter_one_alone(self):
        """huggingface/transformers#27226, #27033: not scaled back after a long input; at
        5.24 still 0.14 off in cos, and 0.35 at the trained length itself.
        """
        w = pe_lab.inv_freq(64)
        bases = []
        for length in (16, 64, 32, 16, 8):
            slowed = scaling.dynamic_ntk(w, 2, length=length, original_length=16)
            bases.append(slowed[1].item() ** -32)
        expected = [1e4, 74_535, 31_082, 1e4, 1e4]
        assert bases == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("length", [512, 1024])
    def test_a_served_length_below_the_trained_one_scales_nothing(self, length):
        """vllm-project/vllm#52665: the base came out negative, or 0 at half the length."""
        rule = lambda w: scaling.dynamic_ntk(w, 2, length=length, original_length=2048)  # noqa: E731
        assert torch.equal(pe_lab.RoPE(64, scaling=rule).inv_freq, pe_lab.inv_freq(64))

    def test_yarn_lengthens_queries_by_the_gain_of_its_factor(self):
        """huggingface/transformers#38224: the factor was derived again from the lengths;
        with factor 4 and equal lengths the gain became 1 for 1.1386.
        """
        rule = lambda w: scaling.yarn(w, 4, original_length=4096)  # noqa: E731
        scheme = pe_lab.RoPE(64, scaling=rule, gain=scaling.yarn_gain(4))
        x = torch.randn(64, generator=torch.Generator().manual_seed(0))
        growth = turned(scheme, x, 9).norm() / x.norm()
        assert growth.item() == pytest.approx(1.1386, abs=5e-5)

    @pytest.mark.parametrize(
        "rule", [scaling.yarn, scaling.llama3, scaling.ntk_by_parts]
    )
    def test_the_trained_length_is_never_guessed(self, rule):
        """NVIDIA/Megatron-LM#1418, NVIDIA-NeMo/Automodel#2652, vllm-project/vllm#56446:
        one field meant the trained length here and the extended one there.
        """
        with pytest.raises(TypeError, match="original_length"):
            rule(pe_lab.inv_freq(64), 4)

    @pytest.mark.parametrize(("pair", "squared"), [(1.0, 1.874), (0.707, 1.590)])
    def test_deepseek_s_second_correction_belongs_to_the_scale(self, pair, squared):
        """ggml-org/llama.cpp#17945, turboderp-org/exllamav3#259: of two corrections one
        was made. With equal numbers tables keep their size and logits grow by gain².
        """
        gain = scaling.yarn_gain(40, mscale=pair, mscale_all_dim=pair)
        assert gain == 1
        q, k = torch.randn(2, 1, 1, 6, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)  # fmt: skip
        rule = lambda w: scaling.yarn(w, 40, original_length=64)  # noqa: E731
        scheme = pe_lab.RoPE(16, scaling=rule, gain=gain)
        scale = 16**-0.5 * scaling.yarn_gain(40, mscale=pair) ** 2
        logits = []
        for given in (None, scale):
            _, p = pe_lab.attention(q, k, k, encoding=scheme, scale=given, return_weights=True)  # fmt: skip
            logits.append(p.log() - p.log().mean(-1, keepdim=True))
        assert torch.allclose(logits[1], squared * logits[0], rtol=5e-4)

    @pytest.mark.parametrize(("dim", "counts"), [(128, (29, 6, 29)), (64, (15, 3, 14))])
    def test_llama_3_is_seen_in_turned_vectors(self, dim, counts):
        """ggml-org/llama.cpp#8650, lablup/mlxcel#1355: the rule was missing, or read and
        not used. Short prompts cannot see it: at 100 the slow pairs hardly turn.
        """
        rule = lambda w: scaling.llama3(w, 8, original_length=8192)  # noqa: E731
        ones = torch.cat((torch.ones(dim // 2), torch.zeros(dim // 2))).double()
        scheme, plain = (
            pe_lab.RoPE(dim, base=5e5, scaling=rule),
            pe_lab.RoPE(dim, base=5e5),
        )

        def angles(scheme, position):
            a, b = turned(scheme, ones, position).chunk(2)
            return torch.atan2(b, a)

        ratio = angles(plain, 1) / angles(scheme, 1)
        kept, divided = (ratio < 1 + 1e-6).sum().item(), (ratio > 8 - 1e-6).sum().item()
        assert (kept, dim // 2 - kept - divided, divided) == counts
        slow = slice(counts[0] + counts[1], None)
        assert angles(plain, 100)[slow].abs().max() < 0.12

    def test_no_table_ends_at_the_trained_length(self):
        """vllm-project/vllm#55910: sized for 4096 when 16384 were promised."""
        rule = lambda w: scaling.yarn(w, 4, original_length=4096)  # noqa: E731
        out = turned(pe_lab.RoPE(64, scaling=rule), unit(0, 64), 16_383)
        assert out[0].item() == pytest.approx(math.cos(16_383), abs=1e-6)


RULES = {
    "default": None,
    "linear": lambda w: scaling.linear(w, 4),
    "yarn": lambda w: scaling.yarn(w, 4, original_length=64),
    "llama3": lambda w: scaling.llama3(w, 4, original_length=64),
}


class TestPartialRotation:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("rule", RULES)
    def test_half_a_head_turns_whatever_the_rule(self, rule, layout):
        """huggingface/transformers#48241, #48630: the share was dropped; at 5.24 the
        default rule ignores it and the others do not.
        """
        scheme = pe_lab.RoPE(8, rotary_dim=4, layout=layout, scaling=RULES[rule])
        x = torch.arange(1.0, 9)
        out = turned(scheme, x, 3)
        assert (out[4:] == x[4:]).all()
        assert (out[:4] != x[:4]).all()

    def test_pairs_and_frequencies_are_those_of_the_rotary_width(self):
        """pie-project/pie#602, labscommunity/cascadia#69: width 4 of 8 with pairs (0,4)
        and (1,5) and the ladder of 8; tables looked right, turned vectors did not.
        """
        scheme = pe_lab.RoPE(8, rotary_dim=4)
        one = torch.tensor([1])
        assert [partner(scheme, c, 8, one)[0] for c in range(4)] == [2, 3, 0, 1]
        sines = [partner(scheme, c, 8, one)[1] for c in (0, 1)]
        assert sines == pytest.approx([math.sin(1), math.sin(0.01)], rel=1e-6)


def causal_weights(scheme, length, dtype=torch.float64, **places):
    """Probabilities where only the bias tells keys apart."""
    q = torch.zeros(1, scheme.num_heads, length, 8, dtype=dtype)
    _, weights = pe_lab.attention(q, q, q, causal=True, encoding=scheme, return_weights=True, **places)  # fmt: skip
    return weights


class TestBiases:
    def test_slopes_for_six_heads(self):
        """ml-explore/mlx#343, NVIDIA/TensorRT-LLM#1611: interpolated or sorted."""
        q, k = torch.zeros(1, 6, 1, 8), torch.zeros(1, 6, 1, 8)
        bias = pe_lab.ALiBi(6).bias(q, k, torch.tensor([1]), torch.tensor([0]))
        exact = [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]
        assert (-bias).flatten().tolist() == exact

    def test_alibi_does_not_vanish_while_decoding(self):
        """keras-team/keras-hub#2861: made over the query's length, it was slope · 0 for
        a single token.
        """
        q, k = torch.zeros(1, 2, 1, 8), torch.zeros(1, 2, 4, 8)
        _, weights = pe_lab.attention(q, k, k, causal=True, encoding=pe_lab.ALiBi(2), return_weights=True)  # fmt: skip
        steps = weights.log().diff(dim=-1)[0, :, 0]
        assert torch.allclose(
            steps, pe_lab.alibi_slopes(2).float()[:, None].expand(2, 3)
        )

    def test_a_block_of_queries_is_aligned_with_the_last_keys(self):
        """vllm-project/vllm#945, Dao-AILab/flash-attention#907: aligned with the first
        keys, |i − j| differs and the softmax does not forgive it.
        """
        scheme = pe_lab.ALiBi(2, symmetric=True)
        full = causal_weights(scheme, 7)
        q, k = (torch.zeros(1, 2, n, 8, dtype=torch.float64) for n in (3, 7))
        _, part = pe_lab.attention(q, k, k, causal=True, encoding=scheme, return_weights=True)  # fmt: skip
        assert torch.allclose(part, full[:, :, -3:], rtol=0, atol=1e-15)

    def test_a_constant_per_row_is_no_error(self):
        """mosaicml/llm-foundry#186: slope · n and slope · (n − m) give one softmax."""
        ids = torch.arange(7)
        full = causal_weights(pe_lab.ALiBi(2), 7)
        shifted = causal_weights(pe_lab.ALiBi(2), 7, q_pos=ids + 1000, k_pos=ids)
        assert torch.allclose(full, shifted, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("length", [1024, 4096])
    def test_distances_and_not_places_are_rounded_to_sixteen_bits(self, length, dtype):
        """Around vllm-project/vllm#945: slope · n in bfloat16 changes probabilities by
        0.41 at length 1024 and by 0.69 at 4096.

        Read off one-hot values near the query, in the fused kernel, for two last queries.
        """
        scheme, near = pe_lab.ALiBi(8), 32
        q, k = (torch.zeros(1, 8, n, 32) for n in (2, length))
        v = torch.zeros(1, 8, length, near)
        v[..., -near:, :] = torch.eye(near)
        exact, ours = (
            pe_lab.attention(q.to(t), k.to(t), v.to(t), causal=True, encoding=scheme)
            for t in (torch.float64, dtype)
        )
        assert exact.max() > 0.3
        assert (ours.double() - exact).abs().max() <= 2 * torch.finfo(dtype).eps

    def test_t5_tells_before_from_after(self):
        """lucidrains/x-transformers#10: the sign of the difference was the other one."""
        scheme = pe_lab.T5Bias(1, bidirectional=True)
        with torch.no_grad():
            scheme.weight.copy_(torch.arange(32.0)[:, None])
        x = torch.zeros(1, 1, 6, 8)
        k_pos = 200 + torch.tensor([-1, 0, 1, -16, -128, 8])
        bias = scheme.bias(x[:, :, :1], x, torch.tensor([200]), k_pos)
        assert bias.flatten().tolist() == [1, 0, 17, 10, 15, 24]

    @pytest.mark.parametrize("scheme", [pe_lab.T5Bias(2), pe_lab.ALiBi(2), pe_lab.RoPE(8)], ids=str)  # fmt: skip
    def test_attention_to_another_sequence_has_no_bias(self, scheme):
        """huggingface/transformers#2334, #7323: a table for it that should not exist.
        Ids of the source, shifted, change nothing in what a relative scheme reads.
        """
        pe_lab.seed(0)
        model = pe_lab.Transformer(11, 16, 2, 1, kind="encoder-decoder", encoding=scheme).double().eval()  # fmt: skip
        text, source = tokens(4), tokens(6)
        near = model(text, source=source)
        far = model(text, source=source, source_positions=torch.arange(6) + 900)
        assert torch.allclose(near, far, rtol=0, atol=1e-11)

    def test_transformer_xl_holds_every_distance_of_both_signs(self):
        """espnet/espnet#2684, labmlai/annotated_deep_learning_paper_implementations#185:
        the shift trick is right below the diagonal only. L = 3: [[0 −1 −2] …].
        """
        scheme = pe_lab.TransformerXL(1, 4)
        with torch.no_grad():
            for parameter in scheme.parameters():
                parameter.zero_()
            scheme.v[0, 0, 0] = 1
            scheme.weight[0, 0, 1] = 1  # the second sine, of 0.01 · distance
        x, ids = torch.zeros(1, 1, 3, 4, dtype=torch.float64), torch.arange(3)
        sine = scheme.double().bias(x, x, ids, ids)[0, 0] * 2
        distances = (sine.asin() * 100).round().int()
        assert distances.tolist() == [[0, -1, -2], [1, 0, -1], [2, 1, 0]]

    def test_shaw_clips_any_distance(self):
        """huggingface/transformers#9164: a table of distances was read past its end."""
        scheme = pe_lab.Shaw(1, 2)
        with torch.no_grad():
            scheme.keys.copy_(torch.arange(-2.0, 3)[:, None])
        q, k = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 11, 1)
        bias = scheme.bias(q, k, torch.tensor([5]), torch.arange(11))
        assert bias.flatten().tolist() == [-2, -2, -2, -2, -1, 0, 1, 2, 2, 2, 2]
        far = scheme.bias(q, k, torch.tensor([5]), torch.arange(11) + 10**9)
        assert (far == 2).all()


class TestMemory:
    def test_the_first_frequency_is_one_wherever_a_module_was_built(self):
        """huggingface/transformers#45902, Synthyra/FastPLMs#47: recycled memory after a
        meta build, NaN or plausible noise.
        """
        with torch.device("meta"):
            schemes = [pe_lab.RoPE(8), pe_lab.Sinusoidal(8), pe_lab.XPos(8)]
        for scheme in schemes:
            assert scheme.to_empty(device="cpu").inv_freq[0] == 1

    def test_a_result_is_the_caller_s_own(self):
        """positional-encodings 6.0.3: a result edited in place was the next result, 101
        for 1.
        """
        table = pe_lab.sinusoidal(8, 4)
        table += 100
        assert pe_lab.sinusoidal(8, 4)[0].tolist() == [0, 1, 0, 1]

    def test_alibi_can_be_trained_through_after_inference(self):
        """x-transformers 2.31: the bias kept from inference_mode breaks training."""
        scheme, x = pe_lab.ALiBi(2), torch.randn(1, 2, 4, 8, requires_grad=True)
        with torch.inference_mode():
            pe_lab.attention(x, x, x, causal=True, encoding=scheme)
        pe_lab.attention(x, x, x, causal=True, encoding=scheme).sum().backward()
        assert x.grad.isfinite().all()

    def test_a_module_built_by_a_bfloat16_loader_is_right_twice(self):
        """rotary-embedding-torch 0.9.1: its cache has the default dtype of the moment;
        0.0 off on the first call, 4.8 on the second.
        """
        x, ids = torch.randn(1, 1, 1024, 64), torch.arange(1024)
        expected, _ = pe_lab.RoPE(64).rotate(x, x, ids, ids)
        torch.set_default_dtype(torch.bfloat16)
        try:
            scheme = pe_lab.RoPE(64)
        finally:
            torch.set_default_dtype(torch.float32)
        for _ in range(2):
            assert torch.equal(scheme.rotate(x, x, ids, ids)[0], expected)

    def test_checkpoints_with_and_without_frequencies(self):
        """EleutherAI/gpt-neox#1161, karpathy/llama2.c#266: a key that one release stores
        and the next does not expect. Nothing is stored here; an old key is named.
        """
        scheme = pe_lab.RoPE(8)
        scheme.load_state_dict({}, strict=True)
        with pytest.raises(RuntimeError, match="inv_freq"):
            scheme.load_state_dict({"inv_freq": torch.zeros(4)}, strict=True)
        scheme.load_state_dict({"inv_freq": torch.zeros(4)}, strict=False)
        assert torch.equal(scheme.inv_freq, pe_lab.inv_freq(8))

    def test_a_table_made_under_autocast_is_not_met_later(self):
        """nomadkaraoke/python-audio-separator#298: a coarse one outlived its context."""
        scheme, x, ids = pe_lab.RoPE(8), torch.randn(1, 2, 50, 8), torch.arange(50)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            under, _ = scheme.rotate(x, x, ids, ids)
        assert torch.equal(scheme.rotate(x, x, ids, ids)[0], under)
        assert torch.equal(under, pe_lab.RoPE(8).rotate(x, x, ids, ids)[0])
