"""Biases, tables and sinusoids beside transformers'."""

import importlib
import inspect

import pytest
import torch

import pe_lab
from pe_lab import hf
from tests.hf.transformers_code import CONFIGS, IDS, SIZES, says, transformers


@pytest.mark.parametrize("heads", [4, 6])
def test_bloom_bias_up_to_a_constant_per_row(heads):
    bloom = importlib.import_module("transformers.models.bloom.modeling_bloom")
    encoding = hf.from_config(
        {"model_type": "bloom", "n_head": heads, "n_layer": 2}
    ).encoding
    theirs = bloom.build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)
    assert_same_softmax(encoding, heads, theirs.view(heads, 1, 9))


@pytest.mark.parametrize(("heads", "steepest"), [(4, 8), (6, 8), (4, 16), (12, 4)])
def test_mpt_bias_up_to_a_constant_per_row(heads, steepest):
    mpt = importlib.import_module("transformers.models.mpt.modeling_mpt")
    config = transformers.MptConfig(
        n_heads=heads, d_model=heads * 8, attn_config={"alibi_bias_max": steepest}
    )
    reading = hf.from_config(config)
    theirs = mpt.build_mpt_alibi_tensor(heads, 9, alibi_bias_max=steepest)
    assert_same_softmax(reading.encoding, heads, theirs)
    says(reading, "learned_pos_emb is ignored")


def test_falcon_divides_its_bias():
    falcon = importlib.import_module("transformers.models.falcon.modeling_falcon")
    config = transformers.FalconConfig(
        hidden_size=64, num_attention_heads=4, alibi=True, num_hidden_layers=1
    )
    reading = hf.from_config(config)
    theirs = falcon.build_alibi_tensor(torch.ones(1, 9).long(), 4, torch.float32)
    # slopes of 4 heads are powers of two, so even bfloat16 is exact here
    assert_same_softmax(reading.encoding, 4, theirs.view(4, 1, 9) / 16**0.5)
    says(reading, "divides by √16", "rounds m_h·n to bfloat16")
    assert isinstance(hf.from_config(transformers.FalconConfig()).encoding, pe_lab.RoPE)


def assert_same_softmax(encoding, heads, theirs):
    """A constant added to a row changes no probability; 1e-6 for float32."""
    q = torch.zeros(1, heads, 9, 8)
    ours = encoding.bias(q, q, IDS, IDS)[0].softmax(-1)
    torch.testing.assert_close(
        ours, theirs.expand(heads, 9, 9).softmax(-1), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("part", ["encoder", "decoder"])
@pytest.mark.parametrize("name", ["t5", "mt5", "umt5"])
def test_t5_bias_equals_transformers(name, part):
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    config = CONFIGS[name](
        d_model=32,
        d_kv=8,
        num_heads=4,
        num_layers=3,
        num_decoder_layers=2,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        vocab_size=9,
    )
    config.is_decoder = part == "decoder"
    reading = hf.from_config(config, part=part)
    attention = next(
        c
        for n, c in inspect.getmembers(module, inspect.isclass)
        if n.endswith("Attention")
    )
    theirs = attention(config, has_relative_attention_bias=True, layer_idx=0)
    encoding = reading.encoding
    with torch.no_grad():
        encoding.weight.copy_(theirs.relative_attention_bias.weight)
    q = torch.zeros(1, 4, 30, 8)
    ids = torch.arange(30)
    ours = encoding.bias(q, q, ids, ids)
    assert torch.equal(ours.tril(), theirs.compute_bias(30, 30, device="cpu").tril())
    assert len(reading.per_layer) == (3 if part == "encoder" else 2)
    assert len({id(e) for e in reading.per_layer}) == (
        len(reading.per_layer) if name == "umt5" else 1
    )
    assert reading.softmax_scale_factor == 8**0.5


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        "bert",
        "albert",
        "electra",
        "distilbert",
        "opt",
        "bart",
        "biogpt",
        "roberta",
        "xlm-roberta",
        "camembert",
        "mpnet",
        "esm",
    ],
)
def test_tables_have_transformers_size_and_rows(name):
    """The row that each of 9 tokens reads, found by looking what the model looks up."""
    changes = {"pad_token_id": 1} if hf.FAMILIES[name].offset < 0 else {}
    known = inspect.signature(CONFIGS[name].__init__).parameters
    sizes = {
        "d_model": 64,
        "dim": 64,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
        "ffn_dim": 8,
        "word_embed_proj_dim": 64,
        "embedding_size": 32,
        "n_positions": 64,
        "n_layers": 1,
        "n_heads": 4,
        "n_layer": 1,
        "num_hidden_layers": 1,
    }
    config = CONFIGS[name](
        **{k: v for k, v in (SIZES | sizes | changes).items() if k in known}
    )
    model = transformers.AutoModel.from_config(config).eval()
    table = next(
        m
        for n, m in model.named_modules()
        if n.endswith(("position_embeddings", "wpe", "embed_positions"))
    )
    seen = []
    table.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        model(torch.arange(5, 14)[None])
    encoding = hf.from_config(config).encoding
    assert encoding.weight.shape == table.weight.shape
    encoding.weight.data.copy_(table.weight.data)
    x = torch.zeros(1, 9, table.weight.shape[1])
    assert torch.equal(encoding.embed(x, IDS), seen[0].reshape(x.shape))


def test_roberta_counts_from_its_padding():
    reading = hf.from_config(
        {"model_type": "roberta", "hidden_size": 8, "max_position_embeddings": 514}
    )
    assert (reading.encoding.max_len, reading.encoding.offset) == (512, 2)
    says(
        reading,
        "pad_token_id is not given: 1",
        "Position 0 is row 2: 512 positions, 514 rows",
    )


def test_esm_can_rotate():
    config = {
        "model_type": "esm",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "max_position_embeddings": 9,
    }
    assert isinstance(hf.from_config(config).encoding, pe_lab.Learned)
    turned = hf.from_config(config | {"position_embedding_type": "rotary"}).encoding
    assert isinstance(turned, pe_lab.RoPE) and turned.layout == "half"


def test_bert_with_relative_keys_is_shaws():
    """Scores gain q·E[m − n + L − 1]/√D, as transformers 4 had it; rows run backwards."""
    keys = {
        "model_type": "bert",
        "hidden_size": 16,
        "num_attention_heads": 2,
        "max_position_embeddings": 9,
        "position_embedding_type": "relative_key",
    }
    reading = hf.from_config(keys)
    table, q = torch.randn(17, 8), torch.randn(1, 2, 9, 8)
    reading.encoding.keys.data.copy_(table.flip(0))
    distance = IDS[:, None] - IDS + 8
    theirs = torch.einsum("bhld,lrd->bhlr", q, table[distance]) / 8**0.5
    torch.testing.assert_close(
        reading.encoding.bias(q, q, IDS, IDS), theirs, rtol=0, atol=1e-5
    )
    says(reading, "flip the checkpoint's table", "reads this key no more")
    assert reading.encoding.read(torch.ones(1, 2, 9, 9), IDS, IDS) is None


@pytest.mark.parametrize("name", ["marian", "m2m_100", "whisper", "distilbert", "xglm"])
def test_sinusoids_equal_transformers(name):
    """Tables at 9 positions from where the family begins to count; float32 angles."""
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    keys = {
        "model_type": name,
        "d_model": 64,
        "dim": 64,
        "pad_token_id": 1,
        "sinusoidal_pos_embds": True,
    }
    reading = hf.from_config(keys, part="encoder")
    if name == "marian":
        theirs, begin = (
            module.MarianSinusoidalPositionalEmbedding(20, 64).create_weight(),
            0,
        )
    elif name == "whisper":
        theirs, begin = module.sinusoids(20, 64), 0
    elif name == "distilbert":
        theirs, begin = torch.nn.Parameter(torch.empty(20, 64), requires_grad=False), 0
        module.create_sinusoidal_embeddings(20, 64, theirs)
    else:
        cls = next(
            c
            for n, c in inspect.getmembers(module, inspect.isclass)
            if n.endswith("SinusoidalPositionalEmbedding")
        )
        theirs, begin = cls.get_embedding(20, 64, 1), 2
        says(reading, "positions + 2")
    ours = reading.encoding.table(IDS + begin, torch.float32)
    torch.testing.assert_close(ours, theirs[begin : begin + 9], rtol=0, atol=2e-5)


def test_whispers_decoder_has_a_table():
    keys = {"model_type": "whisper", "d_model": 8, "max_target_positions": 448}
    assert hf.from_config(keys, part="decoder").encoding.max_len == 448


def test_xlnet_scores_equal_transformers():
    """(q + u)·k + (q + v)·r(m − n), over √D, with our W, u, v copied from its layer."""
    module = importlib.import_module("transformers.models.xlnet.modeling_xlnet")
    config = transformers.XLNetConfig(d_model=16, n_head=2, n_layer=1, d_inner=8)
    encoding = hf.from_config(config).encoding
    layer, model = module.XLNetRelativeAttention(config), module.XLNetModel(config)
    layer.eval()
    torch.manual_seed(0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    encoding.weight.data.copy_(layer.r.data.permute(1, 2, 0))
    encoding.u.data.copy_(layer.r_w_bias.data[:, None])
    encoding.v.data.copy_(layer.r_r_bias.data[:, None])
    q, k = torch.randn(2, 9, 1, 2, 8)
    r = torch.einsum(
        "ibh,hnd->ibnd", model.relative_positional_encoding(9, 9, bsz=1), layer.r
    )
    v = torch.zeros_like(k)
    _, theirs = layer.rel_attn_core(q, k, v, r, output_attentions=True)
    q, k = (x.permute(1, 2, 0, 3) for x in (q, k))
    ours = (q @ k.mT / 8**0.5 + encoding.bias(q, k, IDS, IDS)).softmax(-1)
    torch.testing.assert_close(ours, theirs.permute(2, 3, 0, 1), rtol=0, atol=1e-5)


def test_vit_and_jamba():
    vit = hf.from_config(
        {"model_type": "vit", "image_size": 224, "patch_size": 16, "hidden_size": 8}
    )
    assert vit.encoding.max_len == 197
    says(vit, "[CLS]", "raster order")
    assert isinstance(
        hf.from_config({"model_type": "jamba", "num_hidden_layers": 2}).encoding,
        pe_lab.NoPE,
    )
