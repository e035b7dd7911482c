"""The encoder that we build of a BERT checkpoint computes what transformers' does."""

import pytest
import torch

from pe_lab.lab import minilm

SENTENCES = [
    "Jesus wept.",
    "In the beginning was the Word, and the Word was with God.",
    "dog bites man",
    "a " * 400 + "long one",
]


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.mark.parametrize("layers", [1, 3])
def test_a_bert_of_random_weights_comes_out_alike(transformers, layers):
    """Float64 on both sides, numbers of size 1: 1e-12 is some thousand roundings."""
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=layers, num_attention_heads=3,
        intermediate_size=40, max_position_embeddings=16, initializer_range=0.5,
        layer_norm_eps=1e-12,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.BertModel(config).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = minilm.encoder_from(theirs.state_dict(), 3)
    ids = torch.randint(50, (2, 16))
    mask = torch.arange(16) < torch.tensor([[16], [9]])
    wanted = theirs(ids, attention_mask=mask.long()).last_hidden_state
    assert (ours(ids, mask=mask) - wanted)[mask].abs().max() <= 1e-12


@pytest.fixture(scope="module")
def checkpoint():
    """The folder of the checkpoint, fetched the first time (84 MB)."""
    try:
        return minilm.fetch()
    except RuntimeError as error:
        pytest.skip(str(error))


def test_the_released_checkpoint_comes_out_alike(transformers, checkpoint):
    """Float32 and six layers on both sides: entries of size 1 differ by some 1e-6."""
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=1536, layer_norm_eps=1e-12,
    )  # fmt: skip
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    from safetensors.torch import load_file

    weights = load_file(checkpoint / "model.safetensors")
    missing = theirs.load_state_dict(weights, strict=False).missing_keys
    assert missing == []
    ours = minilm.load()
    ids, real = ours.tokens(SENTENCES)
    assert ids.shape[1] > 400  # rows far down the table are read, too
    with torch.no_grad():
        wanted = theirs(ids, attention_mask=real.long()).last_hidden_state
        found = ours.model(ids, mask=real)
    assert (found - wanted)[real].abs().max() <= 1e-5
    pooled = (wanted * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    unit = torch.nn.functional.normalize(pooled, dim=1)
    assert (ours.embed(SENTENCES, batch_size=3) - unit).abs().max() <= 1e-5


def test_the_shipped_table_is_that_of_the_checkpoint(checkpoint):
    from safetensors.torch import load_file

    weights = load_file(checkpoint / "model.safetensors")
    assert torch.equal(minilm.position_table(), weights[minilm.ROWS])
    assert torch.equal(minilm.load().model.encoding.weight, minilm.position_table())


def test_tokens_are_those_of_the_released_tokenizer(transformers, checkpoint):
    """101 and 102 are its [CLS] and [SEP]; every text is as long as it is."""
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(checkpoint / "tokenizer.json")
    )
    theirs.backend_tokenizer.no_padding()
    theirs.backend_tokenizer.no_truncation()
    ids, real = minilm.load().tokens(SENTENCES)
    for row, mask, text in zip(ids, real, SENTENCES, strict=True):
        assert row[mask].tolist() == theirs.backend_tokenizer.encode(text).ids
        assert (row[0], row[mask][-1]) == (101, 102)
        assert (row[~mask] == 0).all()
