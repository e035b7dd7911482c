"""The schemes, one file each. A scheme is which of the three doors it opens."""

from pe_lab.encodings.alibi import ALiBi
from pe_lab.encodings.base import NoPE, PositionalEncoding
from pe_lab.encodings.learned import Learned
from pe_lab.encodings.rope import RoPE
from pe_lab.encodings.sinusoidal import Sinusoidal

__all__ = ["ALiBi", "Learned", "NoPE", "PositionalEncoding", "RoPE", "Sinusoidal"]
