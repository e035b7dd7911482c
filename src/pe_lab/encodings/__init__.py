"""The schemes, one file each. A scheme is which of the three doors it opens."""

from pe_lab.encodings.alibi import ALiBi
from pe_lab.encodings.axial import AxialRoPE, MRoPE
from pe_lab.encodings.base import NoPE, PositionalEncoding
from pe_lab.encodings.fire import Fire
from pe_lab.encodings.kerple import Kerple
from pe_lab.encodings.learned import Learned
from pe_lab.encodings.rope import RoPE
from pe_lab.encodings.shaw import Shaw
from pe_lab.encodings.sinusoidal import Sinusoidal
from pe_lab.encodings.sinusoidal_grid import AxialSinusoidal
from pe_lab.encodings.t5 import T5Bias
from pe_lab.encodings.transformer_xl import TransformerXL
from pe_lab.encodings.tupe import TUPE
from pe_lab.encodings.xpos import XPos

__all__ = [
    "ALiBi",
    "AxialRoPE",
    "AxialSinusoidal",
    "Fire",
    "Kerple",
    "Learned",
    "MRoPE",
    "NoPE",
    "PositionalEncoding",
    "RoPE",
    "Shaw",
    "Sinusoidal",
    "T5Bias",
    "TUPE",
    "TransformerXL",
    "XPos",
]
