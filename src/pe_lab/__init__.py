"""Position in Transformers, proved, measured, debugged.

The encodings, the attention with three doors and the small Transformer come with the
import; what needs plotting or notebook packages is imported when it is first used.
"""

from importlib import import_module
from types import ModuleType

from pe_lab import (
    doctor,
    encodings,
    flex,
    hf,
    hf_compat,
    positions,
    properties,
    scaling,
)
from pe_lab.attention import KeyValueCache, MultiHeadAttention, attention
from pe_lab.doctor import diagnose
from pe_lab.encodings.alibi import ALiBi, alibi_bias, alibi_slopes
from pe_lab.encodings.axial import AxialRoPE, MRoPE
from pe_lab.encodings.base import NoPE, PositionalEncoding
from pe_lab.encodings.channels import alibi_channels
from pe_lab.encodings.fire import Fire
from pe_lab.encodings.kerple import Kerple
from pe_lab.encodings.layout import convert_layout
from pe_lab.encodings.learned import Learned, resample_grid, resample_rows
from pe_lab.encodings.rope import RoPE, apply_rope
from pe_lab.encodings.shaw import Shaw
from pe_lab.encodings.sinusoidal import (
    Sinusoidal,
    position_kernel,
    rotation_matrix,
    score_matrix,
    sinusoidal,
)
from pe_lab.encodings.sinusoidal_grid import AxialSinusoidal, axial_sinusoidal
from pe_lab.encodings.t5 import T5Bias, t5_bucket
from pe_lab.encodings.transformer_xl import TransformerXL
from pe_lab.encodings.tupe import TUPE
from pe_lab.encodings.xpos import XPos
from pe_lab.exercises import check
from pe_lab.frequencies import inv_freq
from pe_lab.model import Transformer
from pe_lab.properties import desiderata
from pe_lab.provenance import provenance
from pe_lab.random import seed
from pe_lab.tables import rope_table
from pe_lab.two_stream import (
    TwoStreamTransformer,
    factorization_order,
    stream_masks,
    two_stream_attention,
)

__version__ = "0.1.0"

_LAZY = ("exercises", "explore", "lab", "plots")

__all__ = [
    "ALiBi",
    "AxialRoPE",
    "AxialSinusoidal",
    "Fire",
    "Kerple",
    "KeyValueCache",
    "Learned",
    "MRoPE",
    "MultiHeadAttention",
    "NoPE",
    "PositionalEncoding",
    "RoPE",
    "Shaw",
    "Sinusoidal",
    "T5Bias",
    "TUPE",
    "Transformer",
    "TransformerXL",
    "TwoStreamTransformer",
    "XPos",
    "alibi_bias",
    "alibi_channels",
    "alibi_slopes",
    "apply_rope",
    "attention",
    "axial_sinusoidal",
    "check",
    "convert_layout",
    "desiderata",
    "diagnose",
    "doctor",
    "encodings",
    "factorization_order",
    "flex",
    "hf",
    "hf_compat",
    "inv_freq",
    "position_kernel",
    "positions",
    "properties",
    "provenance",
    "resample_grid",
    "resample_rows",
    "rope_table",
    "rotation_matrix",
    "scaling",
    "score_matrix",
    "seed",
    "sinusoidal",
    "stream_masks",
    "t5_bucket",
    "two_stream_attention",
    *_LAZY,
]


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return import_module(f"pe_lab.{name}")
    raise AttributeError(f"pe_lab has no name {name!r}; it has: {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted(__all__)
