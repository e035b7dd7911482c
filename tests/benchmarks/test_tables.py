"""The benchmark of tables: everybody makes the same table, and the sums are right."""

from __future__ import annotations

import pytest
import torch

from benchmarks import tables

ENTRIES, _ = tables.contestants(512)
MAKERS = [entry for entry in ENTRIES if entry.rows is not None]


def test_the_reference_is_exact():
    # float64 angles near 10⁴ are rounded by up to 1e-12, the reference is not
    cos, sin = tables.exact(10_000)
    p = tables.last_ids(10_000).double()
    angle = p * tables.BASE ** (-2 * 3 / tables.WIDTH)
    torch.testing.assert_close(cos[:, 3], angle.cos(), rtol=0, atol=4e-12)
    torch.testing.assert_close(sin[:, 3], angle.sin(), rtol=0, atol=4e-12)
    assert cos.dtype == sin.dtype == torch.float64


@pytest.mark.parametrize("entry", MAKERS, ids=lambda entry: entry.name)
def test_everybody_makes_the_same_table(entry: tables.Maker):
    # float32 angles near 10³ are rounded by up to 6e-5; another formula, order of
    # channels or position is off by far more
    for got, want in zip(entry.rows(1000), tables.exact(1000), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=0, atol=2e-4)


def test_shared_memory_is_counted_once():
    points = torch.zeros(500, 2)  # 4000 bytes
    assert tables.megabytes((points[:, 0], points[:, 1])) == 0.004
    assert tables.megabytes((points, points.clone())) == 0.008
