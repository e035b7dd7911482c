"""The keys of a config: loaded, found under any of their names, and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from pe_lab import refuse

from .note import Note

# The names of one thing; the first that has a value counts.
NAMES = {
    "hidden_size": "hidden_size n_embd d_model dim emb_dim n_embed",
    "table_width": "embedding_size hidden_size n_embd d_model dim emb_dim",
    "num_heads": "num_attention_heads n_head n_heads num_heads encoder_attention_heads",
    "num_layers": "num_hidden_layers n_layer n_layers num_layers encoder_layers",
    "max_length": "max_position_embeddings n_positions max_seq_len seq_length",
    "head_dim": "head_dim d_head d_kv kv_channels",
    "base": "rope_theta rotary_emb_base global_rope_theta",
    "partial": "partial_rotary_factor rotary_pct rotary_emb_fraction",
    "interleaved": "rope_interleave rotary_emb_interleaved",
    "pad": "pad_token_id pad_index",
    "text": "text_config llm_config language_config",
}


def names(thing: str) -> list[str]:
    """All names of a thing; of one that has no others, its own."""
    return NAMES.get(thing, thing).split()


@dataclass
class Keys:
    """A part of a config, and the notes made while the whole is read."""

    values: dict[str, Any]
    notes: list[Note]

    def note(
        self, text: str, sort: str = "derived", severity: str = "note", key: str = ""
    ) -> None:
        """Tell the reader; the words are those of `Note`."""
        self.notes.append(Note(text, sort, severity, key))

    def name(self, thing: str) -> str:
        """The first of the thing's names that has a value, or its own."""
        known = names(thing)
        return next((n for n in known if self.values.get(n) is not None), known[0])

    def get(self, thing: str) -> Any:
        """The value as it stands, None if there is none."""
        return self.values.get(self.name(thing))

    def whole(self, thing: str, least: int = 1, most: int = 2**24) -> int | None:
        """The value as an int, if there is one."""
        name, value = self.name(thing), self.get(thing)
        if value is not None and refuse.whole(name, value, least) > most:
            raise ValueError(
                f"{name} needs a whole number of at most {most}, got {value}."
            )
        return None if value is None else int(value)

    def need(self, thing: str, least: int = 1, most: int = 2**24) -> int:
        """The value as an int, which must be there."""
        value = self.whole(thing, least, most)
        if value is None:
            raise ValueError(
                f"config needs {' or '.join(names(thing))}; none is there."
            )
        return value

    def number(
        self, thing: str, least: float = -1e30, most: float = 1e30
    ) -> float | None:
        """The value as a float, if there is one."""
        name, value = self.name(thing), self.get(thing)
        if isinstance(value, int) and abs(value) > 2**62:
            digits = len(str(value))
            raise ValueError(f"{name} needs a number, got one of {digits} digits.")
        return None if value is None else refuse.number(name, value, least, most)

    def flag(self, thing: str, default: bool = False) -> bool:
        """The value, which is True or False, or the default."""
        value = self.get(thing)
        return default if value is None else refuse.flag(self.name(thing), value)

    def block(self, thing: str) -> Keys:
        """The keys one level down, none if there is no such level."""
        value = self.get(thing)
        inside = {} if value is None else mapping(self.name(thing), value)
        return Keys(inside, self.notes)


def word(name: str, value: Any) -> str:
    """The value, if it is a text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} needs a word, got {value!r:.80}.")
    return value


def mapping(name: str, value: Any) -> dict[str, Any]:
    """The value as a dict, if it is one or an object that holds keys."""
    if callable(getattr(value, "to_dict", None)) and not isinstance(value, type):
        value = value.to_dict()
    elif not isinstance(value, Mapping) and hasattr(value, "__dict__"):
        value = {} if isinstance(value, type | Tensor) else vars(value)
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise TypeError(
            f"{name} needs a dict of keys, or an object that holds them, got "
            f"{value!r:.80}."
        )
    return dict(value)


def load(config: Any) -> dict[str, Any]:
    """A config in any of the forms that `from_config` takes, as a dict."""
    if not isinstance(config, str | PathLike):
        return mapping("config", config)
    path = Path(config)
    try:
        path = path / "config.json" if path.is_dir() else path
        return mapping("config", json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"config needs a dict, or the path of a config.json; {str(path)!r:.200} "
            f"cannot be read: {error!s:.200}. Nothing is downloaded here; fetch the "
            "file first."
        ) from None
