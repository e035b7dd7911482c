"""The checks that attention layers and models share, causes before effects."""

from __future__ import annotations

from pe_lab.doctor.sequence_identity import identify
from pe_lab.doctor.sequence_order import check_layers, check_order, check_shift
from pe_lab.doctor.sequence_range import check_dtype, check_length, check_scale
from pe_lab.doctor.sequence_rows import check_packing, check_padding
from pe_lab.doctor.sequence_runs import check_cache, check_history
from pe_lab.doctor.sequence_sight import check_causal, check_mode, check_rows

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
