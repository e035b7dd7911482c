"""The checks that attention layers and models share, causes before effects."""

from __future__ import annotations

from pe_lab.doctor.sequence.identity import identify
from pe_lab.doctor.sequence.order import check_layers, check_order, check_shift
from pe_lab.doctor.sequence.range import check_dtype, check_length, check_scale
from pe_lab.doctor.sequence.rows import check_packing, check_padding
from pe_lab.doctor.sequence.runs import check_cache, check_history
from pe_lab.doctor.sequence.sight import check_causal, check_mode, check_rows

CHECKS = (
    check_mode,
    check_rows,
    check_history,
    check_causal,
    check_order,
    check_shift,
    check_layers,
    check_padding,
    check_packing,
    check_cache,
    check_length,
    check_dtype,
    check_scale,
)

__all__ = ["CHECKS", "identify"]
