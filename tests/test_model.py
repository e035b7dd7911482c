"""The small Transformer: caches, padding and packing change nothing."""

import pytest
import torch

import pe_lab

SCHEMES = {
    "none": lambda: pe_lab.NoPE(),
    "sinusoidal": lambda: pe_lab.Sinusoidal(16),
    "learned": lambda: pe_lab.Learned(32, 16, std=1.0),
    "rope": lambda: pe_lab.RoPE(8),
    "alibi": lambda: pe_lab.ALiBi(2),
}


@pytest.fixture(params=SCHEMES)
def decoder(request):
    pe_lab.seed(0)
    model = pe_lab.Transformer(11, 16, 2, 2, encoding=SCHEMES[request.param]())
    return model.double().eval()


@pytest.fixture
def ids():
    return torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(1))


def test_decoding_with_a_cache_is_the_full_pass(decoder, ids):
    """At every step, in one-token and larger pieces; float64, so 1e-12."""
    full = decoder(ids)
    for sizes in ([1] * 9, [4, 1, 4], [9]):
        cache, out = None, []
        for piece in ids.split(sizes, dim=1):
            logits, cache = decoder.extend(piece, cache)
            out.append(logits)
        assert torch.allclose(torch.cat(out, 1), full, atol=1e-12)


def test_a_cache_is_not_changed_by_use(decoder, ids):
    _, cache = decoder.extend(ids[:, :4])
    first, _ = decoder.extend(ids[:, 4:5], cache)
    decoder.extend(ids[:, 5:], cache)
    again, _ = decoder.extend(ids[:, 4:5], cache)
    assert torch.equal(first, again)
    assert cache[0].k.shape[2] == 4


def test_padding_on_either_side_changes_nothing(decoder, ids):
    full = decoder(ids)
    pad, real = torch.zeros(3, 4).long(), torch.ones(3, 9).bool()
    for left in (True, False):
        rows = torch.cat((pad, ids) if left else (ids, pad), 1)
        mask = torch.cat((pad.bool(), real) if left else (real, pad.bool()), 1)
        out = decoder(rows, positions=pe_lab.positions.from_mask(mask), mask=mask)
        assert torch.allclose(out[mask].view_as(full), full, atol=1e-12)


def test_left_padded_decoding_continues_each_row_where_it_is(decoder, ids):
    """Rows of 9, 6 and 2 tokens in one batch, each against itself alone."""
    lengths = [9, 6, 2]
    mask = torch.stack([torch.arange(9) >= 9 - n for n in lengths])
    rows = torch.where(mask, ids, 0)
    positions = pe_lab.positions.from_mask(mask)
    _, cache = decoder.extend(rows, positions=positions, mask=mask)
    new = torch.tensor([[1], [2], [3]])
    together, _ = decoder.extend(new, cache)
    for b, n in enumerate(lengths):
        alone = decoder(torch.cat((rows[b : b + 1, 9 - n :], new[b : b + 1]), 1))
        assert torch.allclose(together[b, 0], alone[0, -1], atol=1e-12)


def test_packed_documents_are_the_documents(decoder, ids):
    positions, mask = pe_lab.positions.packed([4, 5])
    packed = decoder(ids, positions=positions, mask=mask[None])
    alone = torch.cat((decoder(ids[:, :4]), decoder(ids[:, 4:])), 1)
    assert torch.allclose(packed, alone, atol=1e-12)


def test_rows_do_not_see_each_other(decoder, ids):
    together = decoder(ids)
    order = torch.tensor([2, 0, 1])
    assert torch.allclose(decoder(ids[order]), together[order], atol=1e-12)
    assert torch.allclose(decoder(ids[:1]), together[:1], atol=1e-12)


def test_later_tokens_do_not_leak(decoder, ids):
    changed = ids.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 11
    assert torch.equal(decoder(ids)[:, :5], decoder(changed)[:, :5])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_without_position_is_equivariant(norm):
    pe_lab.seed(0)
    model = pe_lab.Transformer(11, 16, 2, 2, kind="encoder", norm=norm).double().eval()
    ids, order = torch.arange(7)[None], torch.tensor([3, 1, 6, 0, 2, 5, 4])
    assert torch.allclose(model(ids[:, order]), model(ids)[:, order], atol=1e-12)
    model.encoding = pe_lab.Sinusoidal(16)
    assert (model(ids[:, order]) - model(ids)[:, order]).abs().max() > 0.01


def test_encoder_decoder_reads_its_source_and_ignores_its_padding():
    pe_lab.seed(0)
    model = pe_lab.Transformer(
        11, 16, 2, 2, kind="encoder-decoder", encoding=pe_lab.Sinusoidal(16),
        source_vocab_size=7, norm="post",
    ).double().eval()  # fmt: skip
    ids, source = torch.randint(11, (2, 4)), torch.randint(7, (2, 5))
    out = model(ids, source=source)
    assert out.shape == (2, 4, 11)
    padded = torch.cat((source, torch.zeros(2, 3).long()), 1)
    mask = torch.arange(8).expand(2, 8) < 5
    assert torch.allclose(model(ids, source=padded, source_mask=mask), out, atol=1e-12)
    assert (model(ids, source=source.flip(1)) - out).abs().max() > 1e-3
    with pytest.raises(ValueError, match="needs source"):
        model(ids)


def test_embeddings_have_unit_variance_by_default_and_what_is_asked_otherwise():
    pe_lab.seed(0)
    model = pe_lab.Transformer(500, 64, 2, 1)
    assert model.embed(torch.arange(500)[None]).std().item() == pytest.approx(
        1, rel=0.02
    )
    other = pe_lab.Transformer(500, 64, 2, 1, embedding_std=1.0, embedding_scale=1.0)
    assert other.embed.weight.std().item() == pytest.approx(1, rel=0.02)
    assert other.embed.scale == 1


def test_a_shared_scheme_is_stored_once():
    model = pe_lab.Transformer(11, 16, 2, 3, encoding=pe_lab.Learned(8, 16))
    names = [name for name in model.state_dict() if "encoding" in name]
    assert names == ["encoding.weight"]


def test_state_round_trips(decoder, ids):
    twin = pe_lab.Transformer(11, 16, 2, 2, encoding=decoder.encoding).double().eval()
    twin.load_state_dict(decoder.state_dict())
    assert torch.equal(twin(ids), decoder(ids))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_trains_under_autocast_and_compiles(scheme):
    pe_lab.seed(0)
    model = pe_lab.Transformer(11, 16, 2, 1, encoding=SCHEMES[scheme](), dropout=0.1)
    ids = torch.randint(11, (2, 9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())  # fmt: skip
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    model = model.eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(ids), model(ids), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m(torch.zeros(2, 3)), TypeError, "integer token ids"),
        (lambda m: m(torch.zeros(3).long()), TypeError, "ids[None]"),
        (lambda m: m([[1]]), TypeError, "integer token ids"),
        (lambda m: m(torch.zeros(2, 3).long(), positions=torch.arange(4)), ValueError, "one id"),
        (lambda m: m(torch.zeros(2, 3).long(), source=torch.zeros(2, 3).long()), ValueError, "reads no source"),
        (lambda m: pe_lab.Transformer(11, 16, 3, 1), ValueError, "multiple of num_heads"),
        (lambda m: pe_lab.Transformer(11, 16, 2, 1, kind="gpt"), ValueError, "kind needs"),
        (lambda m: pe_lab.Transformer(11, 16, 2, 1, norm="rms"), ValueError, "norm needs"),
        (lambda m: pe_lab.Transformer(0, 16, 2, 1), ValueError, "vocab_size needs"),
        (lambda m: pe_lab.Transformer(11, 16, 2, 0), ValueError, "num_layers needs"),
        (lambda m: pe_lab.Transformer(11, 16, 2, 1, kind="encoder").extend(torch.zeros(1, 1).long()), ValueError, "kind='decoder'"),
        (lambda m: m.encode(torch.zeros(1, 1).long()), ValueError, "kind='encoder-decoder'"),
        (lambda m: m.extend([[1]]), TypeError, "integer token ids"),
        (lambda m: pe_lab.Transformer(11, 16, 2, 1, kind="encoder-decoder", source_vocab_size=0), ValueError, "source_vocab_size needs"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, error, words):
    with pytest.raises(error) as caught:
        call(pe_lab.Transformer(11, 16, 2, 1))
    assert words in str(caught.value)


@pytest.mark.parametrize("bad", [-1, 11])
def test_tokens_outside_the_vocabulary_are_refused(bad):
    with pytest.raises(IndexError, match="ids needs numbers from 0 to 10"):
        pe_lab.Transformer(11, 16, 2, 1)(torch.tensor([[0, bad]]))


def test_a_row_that_was_all_padding_starts_at_zero():
    """An empty prompt beside one of three tokens; float64, so 1e-12."""
    pe_lab.seed(0)
    scheme = pe_lab.Learned(9, 16, std=1.0)
    model = pe_lab.Transformer(11, 16, 2, 1, encoding=scheme).double().eval()
    mask = torch.tensor([[True] * 3, [False] * 3])
    ids = pe_lab.positions.from_mask(mask)
    _, cache = model.extend(torch.zeros(2, 3).long(), positions=ids, mask=mask)
    new = torch.tensor([[4], [5]])
    together, _ = model.extend(new, cache)
    assert torch.allclose(together[1], model(new[1:])[0], atol=1e-12)


def test_what_cannot_be_counted_on_is_refused():
    """After an image the next id is no cell's neighbour; rows cannot appear."""
    scheme = pe_lab.MRoPE(12, (2, 2, 2))
    model = pe_lab.Transformer(11, 24, 2, 1, encoding=scheme)
    ids, _ = pe_lab.positions.mrope([2, (1, 2, 2)])
    _, cache = model.extend(torch.zeros(1, 6).long(), positions=ids[None])
    with pytest.raises(ValueError, match="need positions"):
        model.extend(torch.zeros(1, 1).long(), cache)
    plain = pe_lab.Transformer(11, 16, 2, 1)
    _, cache = plain.extend(torch.zeros(1, 2).long())
    with pytest.raises(ValueError, match="ids need the 1 rows of the cache, got 2"):
        plain.extend(torch.zeros(2, 1).long(), cache)
