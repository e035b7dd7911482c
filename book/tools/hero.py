"""Draw the picture of the front page and the README from computed values.

    python book/tools/hero.py

Above, the sines of the table: position runs to the right, the fast channels are on top.
Below, on the same axis, how alike the row of one position is to the row of every other
one, PE(m)·PE(n): the answer that the table gives to "where am I?".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure

import pe_lab
from pe_lab import plots

STATIC = Path(__file__).parents[1] / "_static"
SEQ_LEN, D_MODEL, HERE = 512, 128, 160
DPI = 160


class Theme(NamedTuple):
    """The colours of one version of the picture."""

    file: str
    ink: str
    mark: str
    colormap: Colormap


THEMES = (
    Theme("hero.png", plots.INK, plots.PALETTE["position"], plots.DIVERGING),
    Theme(
        "hero-dark.png",
        "#dde3ea",
        "#4cc3a0",
        LinearSegmentedColormap.from_list(
            "pe_dark", ("#f2c078", "#a8712a", "#14181e", "#7d63b5", "#d9cff0")
        ),
    ),
)


def draw_table(ax: Axes, theme: Theme) -> None:
    """The sines of the table, one column for each position."""
    sines = pe_lab.sinusoidal(SEQ_LEN, D_MODEL, order="halves")[:, : D_MODEL // 2]
    ax.imshow(sines.T.numpy(), cmap=theme.colormap, vmin=-1, vmax=1, aspect="auto")
    ax.set_axis_off()


def draw_likeness(ax: Axes, theme: Theme) -> None:
    """One row of PE·PEᵀ."""
    positions = torch.arange(SEQ_LEN)
    likeness = pe_lab.position_kernel(positions - HERE, D_MODEL).numpy()
    top = likeness[HERE].item()
    ax.fill_between(positions, likeness, color=theme.mark, alpha=0.18, lw=0)
    ax.plot(positions, likeness, color=theme.mark, lw=2)
    ax.set(xlim=(-0.5, SEQ_LEN - 0.5), ylim=(0, 1.12 * top))
    ax.set_axis_off()
    style: dict[str, Any] = {"color": theme.ink, "fontsize": 13}
    ax.text(HERE + 6, 0.95 * top, f"m = {HERE}", weight="bold", **style)
    height = likeness[-100:].max().item() + 0.06 * top
    ax.text(SEQ_LEN - 3, height, "PE(m)·PE(n)", ha="right", **style)


def draw(theme: Theme) -> Figure:
    """The two panels, and one line through both at the position asked about."""
    fig = Figure(figsize=(10, 4))
    FigureCanvasAgg(fig)
    top, bottom = fig.subplots(2, 1, height_ratios=(1.25, 1), gridspec_kw={"hspace": 0})
    fig.subplots_adjust(0, 0, 1, 1)
    draw_table(top, theme)
    draw_likeness(bottom, theme)
    for ax in (top, bottom):
        ax.axvline(HERE, color=theme.ink, lw=1.6)
    return fig


def main() -> None:
    """Write both versions, with nothing behind them."""
    with mpl.rc_context({"font.family": "DejaVu Sans"}):
        for theme in THEMES:
            draw(theme).savefig(STATIC / theme.file, dpi=DPI, transparent=True)


if __name__ == "__main__":
    main()
