# %% [markdown]
# (ch-tables)=
# # Compute the tables by hand
#
# :::{div} strip
# 50 minutes to read · under 10 s of CPU · you need sine, cosine and radians; {ref}`ch-break` says why position must be put in.
# :::
#
# **You will be able to**
#
# - compute any entry of a sinusoidal table, for any position, channel and width ({ref}`ex-03-entry`);
# - proofread a printed table with code instead of eyes ({ref}`ex-03-slips`);
# - carry a table from one channel order to the other ({ref}`ex-03-orders`);
# - say how many positions a pair of channels takes to come around, and choose a base for a length ({ref}`ex-03-base`);
# - make a table that is right at position one million ({ref}`ex-03-accurate`).

# %%
import torch

import pe_lab

torch.set_num_threads(1)

# %% [markdown]
# ## Which table is wrong?
#
# Four positions, four channels, sixteen numbers: the smallest table worth looking at.
# It is often worked out by hand, and it circulates as the answer of a PyTorch session.
# In that session position 1 ends in 1.0000.
# Run the cell and look at that place: second row, last column.

# %%
pe_lab.sinusoidal(4, 4)

# %% [markdown]
# Here it ends in 0.9999.
# There is no chance in this table, so which number is right, and why are there two?
# To answer we compute the table ourselves, first four channels wide, then eight.
# On the way we shall find five wrong numbers in a larger table that is in circulation.

# %% [markdown]
# Point at a cell, or walk with the arrow keys, and read how its number is made.
# Move the width from 8 to 16 and to 32, and watch how the wave beside the table changes from channel to channel.
# Then change the order of the channels.
# Notice that only the fast channels on the left do much within so few positions, and that the order moves columns and changes no number.

# %%
pe_lab.explore.TableBuilder()

# %% [markdown]
# ## Four channels
#
# Channels come in pairs: the sine and the cosine of one angle.
# With four channels there are two pairs.
# From one position to the next, the angle of the first pair grows by 1 radian, that of the second by 0.01.
# So the row of position 1 is $\sin 1$, $\cos 1$, $\sin 0.01$, $\cos 0.01$.
# Before you run on: which two of these four numbers will be nearly the same at position 2?

# %%
from math import cos, pi, sin

[round(x, 3) for x in (sin(1), cos(1), sin(0.01), cos(0.01))]

# %% [markdown]
# For the row of position $p$ we multiply both angles by $p$ and do the same again.
# At position 0 both angles are zero, so the row has to be 0, 1, 0, 1.

# %%
torch.set_printoptions(precision=3, sci_mode=False)


def row(position, frequencies):
    angles = [position * omega for omega in frequencies]
    return [f(angle) for angle in angles for f in (sin, cos)]


by_hand = torch.tensor([row(p, (1, 0.01)) for p in range(4)])
by_hand

# %% [markdown]
# The first pair jumps about and the last two numbers hardly move.
# That is the whole idea: a fast pair tells neighbours apart, a slow pair tells regions apart.
# Now in symbols.
# Let $d$ be the number of channels, and count **pairs** with $i = 0, 1, \dots, d/2 - 1$; pair $i$ owns the channels $2i$ and $2i + 1$ {cite:p}`vaswani2017`.
#
# $$
# \begin{aligned}
# \mathrm{PE}[p, 2i] &= \sin(p\,\omega_i), \\
# \mathrm{PE}[p, 2i + 1] &= \cos(p\,\omega_i), \\
# \omega_i &= 10000^{-2i/d}
# \end{aligned}
# $$ (eq-table)
#
# The number $\omega_i$ is the **frequency** of the pair, in radians per position.
# For $d = 4$ it gives $\omega_0 = 1$ and $\omega_1 = 10000^{-1/2} = 0.01$.

# %% [markdown]
# In code, `[:, None]` stands the positions in a column, so that their product with the frequencies has a row for each position.
# `stack` puts each sine beside its cosine, and `flatten` lays the pairs out along the channels.
# Does this agree with the sixteen numbers that we made one by one, and with the package?


# %%
def table(num_positions, d_model):
    pair = torch.arange(d_model // 2, dtype=torch.float64)
    omega = 10000 ** (-2 * pair / d_model)
    angles = torch.arange(num_positions)[:, None] * omega
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


print((table(4, 4) - by_hand).abs().max() < 1e-7)
print((table(4, 4) - pe_lab.sinusoidal(4, 4)).abs().max() < 1e-7)

# %% [markdown]
# ## Eight channels
#
# Twice the channels, twice the pairs: four frequencies, from 1 downwards.
# A widespread statement says that each of them is $\sqrt{10}$ times smaller than the one before.
# Put $d = 8$ into formula {eq}`eq-table` and decide for yourself before you run the cell.

# %%
pe_lab.inv_freq(8)

# %% [markdown]
# The step is 10, not $\sqrt{10}$.
# One pair on, the exponent $-2i/d$ falls by $2/d$, so each frequency is $10000^{2/d}$ times smaller than the one before it, all along the ladder.
# For which width is that $\sqrt{10} \approx 3.162$?

# %%
for d_model in (4, 8, 16, 64, 512):
    omega = pe_lab.inv_freq(d_model)
    steps = omega[:-1] / omega[1:]
    assert (steps - steps[0]).abs().max() < 1e-9
    print(f"d_model {d_model:3}: {d_model // 2:3} pairs, step {steps[0]:8.4f}")

# %% [markdown]
# For $d = 16$.
# Every ladder starts at 1 and ends above $1/10000$; a wider table takes smaller steps.
# At 512 channels neighbouring pairs differ by less than four percent.
#
# Here is the table for eight positions and eight channels, 64 numbers.

# %%
eight = table(8, 8)
eight

# %% [markdown]
# Read it before you go on, and call each of these statements true or false.
#
# 1. Neighbouring positions are close in every channel.
# 2. The first two channels are negative from position 4 on.
# 3. Within these eight positions the fastest pair makes about one turn.

# %%
step = eight[1] - eight[0]
print("from 0 to 1: ", step.abs())
print(f"its length:   {step.norm():.3f}, of a row: {eight[0].norm():.3f}")
print("sine < 0 at  ", (eight[:, 0] < 0).nonzero().flatten().tolist())
print("cosine < 0 at", (eight[:, 1] < 0).nonzero().flatten().tolist())
print(f"turns:        {7 / (2 * pi):.3f}")

# %% [markdown]
# Only the third is true; the first two circulate with the table.
# Neighbours are close in the slow channels only: channel 0 moves by 0.841, and the two rows are 0.964 apart.
# The sine is negative at positions 4, 5 and 6, the cosine at 2, 3 and 4.
# After 1.114 turns the fastest pair is back where it began.

# %% [markdown]
# ## A table in circulation
#
# The next cell holds a printed table of the same 64 numbers, three decimals each, as it circulates.
# Some of its numbers are wrong in the last digit.
# You may look for them; then let the code look.

# %%
circulating = torch.tensor(
    [
        [0.000, 1.000, 0.000, 1.000, 0.000, 1.000, 0.000, 1.000],
        [0.841, 0.540, 0.099, 0.995, 0.010, 1.000, 0.001, 1.000],
        [0.909, -0.416, 0.198, 0.980, 0.020, 1.000, 0.002, 1.000],
        [0.141, -0.990, 0.295, 0.955, 0.030, 1.000, 0.003, 1.000],
        [-0.756, -0.654, 0.389, 0.921, 0.040, 0.999, 0.004, 1.000],
        [-0.959, 0.284, 0.479, 0.878, 0.050, 0.999, 0.005, 1.000],
        [-0.279, 0.960, 0.565, 0.825, 0.060, 0.998, 0.006, 1.000],
        [0.657, 0.754, 0.644, 0.764, 0.070, 0.998, 0.007, 1.000],
    ]
)

# %%
wrong = (1000 * eight).round() != (1000 * circulating).round()
for p, c in wrong.nonzero().tolist():
    print(f"[{p}, {c}]  exact {eight[p, c]:8.5f}  printed {circulating[p, c]:6.3f}")

# %% [markdown]
# Five of 64 cells.
# Each exact value lies more than half way to the next thousandth, and the printed one stops short of it.
# So our suspicion is that digits were cut off where they should have been rounded.
# If it is right, cutting off must give exactly the printed numbers in these five cells.
# What would it give in the others?

# %%
cut = (1000 * eight).trunc()
as_printed = cut == (1000 * circulating).round()
as_rounded = cut == (1000 * eight).round()
print("cut off, of the five:", as_printed[wrong].sum().item())
print("spoiled by cutting everywhere:", (~as_rounded).sum().item())

# %% [markdown]
# All five were cut off.
# Cutting off everywhere would have spoiled 39 cells, so the other 34 were rounded as they should be.
# No program that treats all cells alike makes such a table: these numbers passed through a hand.
# A printed table is a claim, and three lines of code check it.

# %% [markdown]
# ## 1.0000 or 0.9999?
#
# Back to the first question, the cell that a session shows as 0.9999.
# The exact value of $\cos 0.01$ lies just above 0.99995, the middle between 0.9999 and 1.0000.
# A float32 tensor cannot hold it: below 1, float32 numbers are $2^{-24}$ apart, and the nearest one may lie on the other side of the middle.

# %%
exact = cos(0.01)
stored = torch.tensor(exact, dtype=torch.float32).item()
print(f"exact    {exact:.10f}, to four decimals {exact:.4f}")
print(f"float32  {stored:.10f}, to four decimals {stored:.4f}")
print(f"spacing  {2**-24:.10f}")
torch.set_printoptions(precision=4)
print(torch.tensor([exact], dtype=torch.float64), torch.tensor([exact]))
torch.set_printoptions(precision=3, sci_mode=False)

# %% [markdown]
# Both are right, as roundings of two different numbers.
# By hand, $\cos 0.01$ to four decimals is 1.0000, and a float64 tensor prints the same.
# The float32 number nearest to it is 0.9999499917, which lies below the middle, and to four decimals that is 0.9999.
# Rounding twice is not rounding once.
# What is wrong is only the label: the code of that session makes float32 tensors.

# %% [markdown]
# ## Position 0 and the length of a row
#
# Is the row of position 0 the zero vector, so that the first token gets no encoding?
# And does mixing sines with cosines keep every component away from zero, as one often reads?
# One row answers both.

# %%
first = pe_lab.sinusoidal(1, 512)[0]
print(first[:6], "…")
print("zeros:", (first == 0).sum().item(), "of", len(first))
print("length:", first.norm().item())

# %% [markdown]
# No, and no.
# Exactly half of the components are zero, and the row $[0, 1, 0, 1, \dots]$ is far from zero.
# Adding it changes every odd channel of the first token by 1.
# Its length is 16, and the next theorem says that every row has that length.

# %% [markdown]
# :::{prf:theorem} Constant length
# :label: thm-norm
#
# Let $d$ be even.
# For every real position $p$, every base and either channel order, $\lVert \mathrm{PE}(p) \rVert = \sqrt{d/2}$.
# :::
#
# :::{prf:proof}
# The squared length is the sum of all squared entries.
# Collect it pair by pair; the order of channels does not matter to a sum.
# Pair $i$ contributes $\sin^2(p\,\omega_i) + \cos^2(p\,\omega_i) = 1$, whatever $p$ and $\omega_i$ are.
# There are $d/2$ pairs, so $\lVert \mathrm{PE}(p) \rVert^2 = d/2$.
# :::

# %%
places = torch.tensor([0, 1, 511, 10**6])
for d_model in (4, 8, 512):
    norms = pe_lab.sinusoidal(places, d_model, dtype=torch.float64).norm(dim=-1)
    assert (norms - (d_model / 2) ** 0.5).abs().max() < 1e-12
    print(f"d_model {d_model:3}: every length is {norms[0]:.4f}")

# %% [markdown]
# The length is the same exactly, not approximately.
# Position is written in the direction of a row and nowhere else.
# A token far down the text gets no larger a push than the first one; a plain count 0, 1, 2, … would give it one.

# %% [markdown]
# ## How slow is slow?
#
# Pair $i$ is back at its start after $2\pi/\omega_i$ positions, its period or {term}`wavelength`.
# For the fastest pair that is $2\pi$, about 6.3 positions, in every table.
# For the slowest at $d = 512$, many texts say: frequency $1/10000$, period $2\pi \cdot 10000$.
# Check it, and mind the difference between the number of a pair and the numbers of its channels.

# %%
omega = pe_lab.inv_freq(512)
for i in (0, 64, 128, 192, 255):
    period = 2 * pi / omega[i]
    channels = f"channels {2 * i:3} and {2 * i + 1:3}"
    turns = f"{512 / period:7.4f} turns in 512"
    print(f"pair {i:3}, {channels}: {omega[i]:.4e}, {period:7.1f}, {turns}")

# %% [markdown]
# The last frequency is $\omega_{255} = 1.0366 \times 10^{-4}$ and its period 60 611 positions.
# The ladder stops one step short of $1/10000$, because the last pair is $i = d/2 - 1$ and not $d/2$.
# Within 512 positions this pair makes 0.0084 of a turn.
# Pair 128, half way down, owns the channels 256 and 257, takes 628 positions, and makes 0.81 of a turn.

# %% [markdown]
# The paper says that wavelengths run from $2\pi$ to $10000 \cdot 2\pi$.
# Its authors' own code, tensor2tensor {cite:p}`vaswani2018`, makes that true.
# It spaces the frequencies as $10000^{-i/(d/2 - 1)}$, and its last one is exactly $1/10000$ at every width.
# With the printed formula the wavelength gets there only in the limit of wide tables.

# %%
for d_model in (4, 8, 64, 512):
    paper = pe_lab.inv_freq(d_model)
    code = pe_lab.inv_freq(d_model, spacing="tensor2tensor")
    slowest = f"{2 * pi / paper[-1]:8.1f} and {2 * pi / code[-1]:8.1f}"
    print(f"d_model {d_model:3}: {slowest}, last frequency {code[-1]:.4e}")

# %% [markdown]
# ## Do two positions ever share a row?
#
# One reads that the slowest period is a capacity: after some sixty thousand positions the encoding wraps around and two positions collide.
# A pair by itself is the hand of a clock, and it does come round.
# A row is many hands at once, and we can prove that they never all come round together.

# %% [markdown]
# :::{prf:theorem} Distinct rows
# :label: thm-distinct
#
# Let $d \ge 2$ and let $p \ne q$ be integers.
# Then $\mathrm{PE}(p) \ne \mathrm{PE}(q)$, for every base and either spacing.
# :::
#
# :::{prf:proof}
# Look at pair 0 alone, whose frequency is $\omega_0 = 1$.
# If the rows were equal, then $\sin p = \sin q$ and $\cos p = \cos q$.
# Two angles with the same sine and the same cosine differ by whole turns: $p - q = 2\pi m$ for an integer $m$.
# Since $p \ne q$, also $m \ne 0$, and $\pi = (p - q)/(2m)$ would be a ratio of integers.
# But $\pi$ is irrational, so the rows are not equal.
# :::

# %% [markdown]
# Distinct is not the same as well separated.
# The cell measures how near another row comes to row 0 within 100 000 positions.
# Row 0 may stand for all, because the distance of two rows depends on their offset alone ({ref}`ch-score` proves it).
# Where do you expect the nearest one, for four channels and for 512?

# %%
for d_model in (4, 512):
    rows = pe_lab.sinusoidal(100_000 + 1, d_model)
    gap = (rows[1:] - rows[0]).norm(dim=-1)
    nearest = gap.argmin().item()
    print(f"d_model {d_model}: nearest is {nearest + 1}, at {gap[nearest]:.4f}")
print(f"at offset 60611: {gap[60610]:.2f}, on average: {gap[1000:].mean():.1f}")

# %% [markdown]
# With 512 channels the nearest row is the neighbour's, 3.7143 away, and nothing happens at the slowest period: 23.50, like any distant pair.
# The slowest period is no capacity.
# With four channels there is little to tell positions apart: 84823 comes within 0.0016, about a thousandth of a row's length.
# It is the number of channels that separates, all of them together.

# %% [markdown]
# ## What the 10000 does
#
# The base leaves the fast end where it is and stretches the rest.
# Count the pairs that finish at least one turn within 512 positions; the others show the model only a part of their curve.

# %%
for base in (100, 10_000, 1_000_000):
    period = 2 * pi / pe_lab.inv_freq(512, base=base)
    turn = (period <= 512).sum().item()
    print(f"base {base:7}: slowest {period[-1]:9.0f}, {turn:3} of 256 pairs turn")

# %% [markdown]
# With 10000 and 512 positions, 123 of 256 pairs make a full turn, and the slower half never does.
# A base of 100 would already keep the slowest pair from wrapping around within that length.
# The paper gives no reason for its choice.
# For rotary encodings, lower bounds that grow with the context length have been found since {cite:p}`men2024`.

# %% [markdown]
# ## Two pictures
#
# {numref}`fig-tables-curves` draws five pairs of a table with 512 channels, sine and cosine, over the first 128 positions.
# Every panel shows the same two waves, stretched about tenfold from one to the next.

# %% mystnb={"figure": {"name": "fig-tables-curves", "caption": "Sine (green) and cosine (orange) of five pairs, d_model = 512. The period grows about tenfold from panel to panel; the last pair has moved by less than one degree after 128 positions."}, "image": {"alt": "Five panels of waves over 128 positions: twenty turns in the first, two in the second, a fifth of a turn in the third, and in the last two an almost straight line for sine near zero and cosine near one."}}
from pe_lab import plots

wide = pe_lab.sinusoidal(128, 512)
with plots.figure(1, 5, size=(6.8, 6.4), sharex=True, sharey=True) as (fig, panels):
    for i, ax in zip((0, 64, 128, 192, 255), panels, strict=True):
        ax.plot(wide[:, 2 * i], color=plots.color("position"), label="sine")
        cosine = wide[:, 2 * i + 1]
        ax.plot(cosine, color=plots.color("highlight"), label="cosine", lw=1.2)
        ax.set_title(f"pair {i}: period {2 * pi / omega[i]:,.1f}", size=10)
        ax.margins(x=0)
    panels[-1].set_xlabel("position")
    plots.label_ends(panels[-1])
fig

# %% [markdown]
# {numref}`fig-tables-heat` shows a whole table at once: 512 positions from left to right, 64 channels from top to bottom.
# Predict the top, the middle and the bottom of the picture before you look.

# %% mystnb={"figure": {"name": "fig-tables-heat", "caption": "The table of 512 positions and 64 channels. Fast pairs on top are stripes, the middle ones waves, and the slow ones below bands: sines near zero (white) between cosines near one (purple)."}, "image": {"alt": "Heat map with positions to the right and channels downwards: fine vertical stripes at the top, ever wider waves in the middle, and horizontal bands alternating white and purple at the bottom."}}
heat = pe_lab.sinusoidal(512, 64)
plots.heatmap(heat.T, xlabel="position", ylabel="channel", size=(6.8, 4.2))

# %% [markdown]
# It looks like a Fourier basis, and is often called one.
# A Fourier basis has frequencies 1, 2, 3, … and orthogonal columns.
# Ours form a geometric ladder, whose slow columns are nearly copies of one another.
# How many independent directions do 512 positions with 512 channels span?

# %%
square = pe_lab.sinusoidal(512, 512, dtype=torch.float64)
energy = torch.linalg.svdvals(square) ** 2
share = energy.cumsum(0) / energy.sum()
print("directions for 99 % of the energy:", (share < 0.99).sum().item() + 1)
print("an orthogonal basis would need:    ", round(0.99 * 512))

# %% [markdown]
# About 109, where an orthogonal basis would need 507.
# So a table is a bank of waves with logarithmic spacing.
# What its pairs do supply is a rotation each, and that is the subject of {ref}`ch-rotate`.

# %% [markdown]
# ## exp or power?
#
# Code computes the frequencies in two ways: $e^{-(2i/d) \ln 10000}$ or $10000^{-2i/d}$.
# A widespread comment calls the first numerically steadier and warns that the second underflows in wide models.
# We measure both in float32 against float64.
# Which do you expect to be nearer?

# %%
from math import log


def by_exp(d_model):
    return torch.exp(torch.arange(0, d_model, 2).float() * (-log(10000) / d_model))


def by_power(d_model):
    return 10000 ** (-torch.arange(0, d_model, 2) / d_model)


for d_model in (512, 768):
    truth = pe_lab.inv_freq(d_model)
    for form in (by_exp, by_power):
        error = ((form(d_model) - truth) / truth).abs().max()
        print(f"d_model {d_model}, {form.__name__:8}: relative error {error:.0e}")

# %% [markdown]
# The power is nearer: ten times at 512, about twice at 768.
# The reason is the size of what is rounded.
# The exponential takes an argument as large as $\ln 10000 \approx 9.2$, and an absolute error there is a relative error of the result.
# The power takes $2i/d$, below 1, and exact when $d$ is a power of two.
# And underflow?

# %%
print(f"largest argument: {log(10000):.1f}")
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    smallest = by_power(2**20).to(dtype).min().item()
    print(f"{dtype}: smallest frequency of a million channels {smallest:.4f}")

# %% [markdown]
# No frequency falls below $1/10000$, at any width, and even 16-bit floats hold that.
# Nothing can underflow.
#
# But frequencies are not the table.
# What reaches the table is the product of position and frequency.
# Which of the two formulas gives the better **table** at position one million?


# %%
def worst(frequencies, position, d_model=512):
    near = torch.arange(position - 63, position + 1)
    angles = near[:, None].float() * frequencies
    got = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
    exact = pe_lab.sinusoidal(near, d_model, dtype=torch.float64)
    return (got - exact).abs().max().item()


print(f"exp   {worst(by_exp(512), 10**6):.2f}")
print(f"power {worst(by_power(512), 10**6):.2f}")
print(f"exact frequencies, rounded {worst(pe_lab.inv_freq(512).float(), 10**6):.2f}")

# %% [markdown]
# Neither.
# Both tables are off by 0.06, and so is one that starts from perfectly rounded frequencies.
# The choice between the formulas does not matter, and something else does: the product is made in float32.
# How coarse is that?
# Just below $2^{20}$, about a million, float32 numbers are 1/16 apart.

# %%
omega = pe_lab.inv_freq(512)
near = torch.arange(10**6 - 63, 10**6 + 1)
angles = near[:, None].double() * omega
print("float32 spacing below 2**20:", 2**19 * torch.finfo(torch.float32).eps)
off = (angles - angles.float()).abs()
print(f"angles rounded:      {off.max():.2f}")
shifted = near[:, None] * omega.float().double()
print(f"frequencies rounded: {(angles - shifted).abs().max():.2f}")
print("angles, pairs 0, 1, 64, 255:", off.amax(dim=0)[[0, 1, 64, 255]].float())

# %% [markdown]
# Half of the error comes from the angles and half from the frequencies.
# Fast pairs suffer most, but for pair 0: its angles are whole numbers, which float32 holds up to $2^{24}$.
# The two halves are not equally bad.
# A rounded frequency is the same at every position, a rounded angle is a small random turn, another one everywhere.
# So take the dot product of each row with the next: it should not depend on where they are.


# %%
def neighbours(angles):
    rows = torch.cat((angles.sin(), angles.cos()), dim=-1).double()
    scores = (rows[1:] * rows[:-1]).sum(dim=-1)
    return f"{scores.min():.1f} to {scores.max():.1f}"


print(f"exact:               {pe_lab.position_kernel(1, 512):.1f}")
print("frequencies rounded:", neighbours(shifted))
print("angles rounded:     ", neighbours(angles.float()))

# %% [markdown]
# `pe_lab` makes angles in float64 and rounds once, at the end.
# {numref}`fig-tables-error` compares the three up to position ten million.
# With every factor of ten the float32 product loses a digit; the exact table stays at half a spacing of float32, 3e-8.
# The reference is float64, evaluated directly, and is itself good to about 2e-9 at ten million.
# The package's tests repeat the comparison against arithmetic with 60 digits.


# %%
def rounding(position, d_model=512):
    near = torch.arange(position - 255, position + 1)
    exact = pe_lab.sinusoidal(near, d_model, dtype=torch.float64)
    return (pe_lab.sinusoidal(near, d_model) - exact).abs().max().item()


print(f"pe_lab at ten million:        {rounding(10**7):.0e}")
print(f"angle error of the reference: {10**7 * 2**-52:.0e}")

# %% mystnb={"figure": {"name": "fig-tables-error", "caption": "Largest error of a float32 table with 512 channels near a position. Two formulas for the frequencies, one line: the float32 product decides. Angles in float64, rounded once, stay at 3e-8 everywhere."}, "image": {"alt": "Logarithmic plot of error against position from a thousand to ten million: the lines for exp and power lie on top of each other and rise in proportion to the position, up to almost one; the line for pe_lab is flat at 3e-8."}}
places = [10**k for k in range(3, 8)]
curves = {
    "exp": [worst(by_exp(512), place) for place in places],
    "power": [worst(by_power(512), place) for place in places],
    "pe_lab": [rounding(place) for place in places],
}
style = {"xlog": True, "ylog": True, "markers": True, "dashed": ["power"]}
labels = {"xlabel": "position", "ylabel": "largest error"}
plots.lines(places, curves, colors={"pe_lab": "position"}, **style, **labels)

# %% [markdown]
# ## Two channel orders
#
# The paper interleaves: sine, cosine, sine, cosine.
# Other code puts all the sines first and then all the cosines; tensor2tensor does, and so do Marian and Whisper in the Transformers library.
# It is the same table with its channels permuted.
# The dot product of two rows is a sum over all channels, so whatever depends on $\mathrm{PE}\,\mathrm{PE}^\top$ alone should not notice.

# %%
long = {
    order: pe_lab.sinusoidal(32, 512, order=order, dtype=torch.float64)
    for order in ("interleaved", "halves")
}
for order in long:
    print(f"{order:11}", pe_lab.sinusoidal(2, 8, order=order)[1])
scores = [rows @ rows.T for rows in long.values()]
print("same scores:", torch.allclose(*scores, rtol=0, atol=1e-10))

# %% [markdown]
# A trained network has weights, though, and weights know channels by number.
# Take a head that attends to the position before its own.
# {ref}`ch-rotate` derives the matrix that does this, `rotation_matrix(1, d)`; here it stands for what training found with interleaved channels.
# Which position does the head look at from position 1, 2, 3, …, with each table?

# %%
head = pe_lab.rotation_matrix(1, 512)
for order, rows in long.items():
    looks_at = (rows @ head @ rows.T).argmax(dim=-1)[1:]
    right = (looks_at == torch.arange(31)).sum().item()
    print(f"{order:11}: {looks_at[:6].tolist()} …, {right} of 31 right")

# %% [markdown]
# With its own table it is right 31 times, with the other one never: it looks at itself.
# No shape is wrong and no error is raised.
# A checkpoint therefore needs the order, and the spacing, of the table that it was trained with.

# %% [markdown]
# ## Odd widths
#
# With five channels the last sine has no cosine.
# Formula {eq}`eq-table` says nothing about it; `pe_lab` follows the formula as far as it goes and ends in a sine.
# What is lost is {prf:ref}`thm-norm`: the lonely sine makes the length depend on the position.
# What will code do that fills even columns with sines and odd columns with cosines?

# %%
odd = pe_lab.sinusoidal(torch.tensor([0, 1000, 2000, 3000]), 5)
print(odd[1])
print("lengths:", odd.norm(dim=-1))

# %% [markdown]
# ## Compare with real code
#
# Much PyTorch code does just that, with slices of an empty table.
# Written out it is `usual` below.
# Over 512 positions it should differ from ours by the float32 rounding of its angles and no more.
# At an odd width it has three frequencies for two odd columns.


# %%
def usual(num_positions, d_model):
    pe = torch.zeros(num_positions, d_model)
    angles = torch.arange(num_positions).float()[:, None] * by_exp(d_model)
    pe[:, 0::2] = torch.sin(angles)
    pe[:, 1::2] = torch.cos(angles)
    return pe


print((usual(512, 64) - pe_lab.sinusoidal(512, 64)).abs().max() < 1e-4)
try:
    usual(4, 5)
except RuntimeError as error:
    print(str(error).split(" at ")[0])

# %% [markdown]
# The other family descends from tensor2tensor: halves, and a ladder that ends at exactly $1/10000$.
# Whisper's audio encoder is a member {cite:p}`radford2023`.
# Marian, in the Transformers library, is half one and half the other: halves, with the spacing of formula {eq}`eq-table`.
# `pe_lab` takes both differences as arguments, and needs both to agree.


# %%
def timing_signal(num_positions, d_model):
    step = log(10000) / (d_model // 2 - 1)
    omega = torch.exp(-step * torch.arange(d_model // 2))
    angles = torch.arange(num_positions)[:, None] * omega
    return torch.cat((angles.sin(), angles.cos()), dim=1)


wanted = timing_signal(512, 512)
spaced = pe_lab.inv_freq(512, spacing="tensor2tensor")
both = pe_lab.sinusoidal(512, 512, order="halves", inv_freq=spaced)
halves = pe_lab.sinusoidal(512, 512, order="halves")
print("order and spacing:", (wanted - both).abs().max() < 1e-4)
print(f"order alone: off by {(wanted - halves).abs().max():.2f}")

# %% [markdown]
# ## Common mistakes
#
# **A frequency for each channel.**
# In formula {eq}`eq-table` the exponent counts pairs.
# If it counts channels, a cosine no longer belongs to its sine, and all theorems about pairs are lost, that of constant length first.

# %%
channel = torch.arange(8)
angles = torch.arange(6)[:, None] * 10000 ** (-channel / 8)  # wrong: no pairs
mixed = torch.where(channel % 2 == 0, angles.sin(), angles.cos())
print("wrong:", mixed.norm(dim=-1))
print("right:", pe_lab.sinusoidal(6, 8).norm(dim=-1))

# %% [markdown]
# **Sixteen bits too early.**
# One reads that rounding endangers the slow channels of a bfloat16 table.
# It is the other way round: a relative error of the angle is worst where angles are large.
# And the position itself is lost, since bfloat16 counts exactly only up to 256.
# Store a table in 16 bits if you must; never compute it there.

# %%
position = torch.arange(4096)
print("distinct positions:", position.bfloat16().unique().numel(), "of", 4096)
omega = pe_lab.inv_freq(128)
off = position.bfloat16()[:, None] * omega.bfloat16() - position[:, None] * omega
print("angle off, pairs 0, 32, 63:", off.abs().amax(dim=0)[[0, 32, 63]].float())
exact = pe_lab.sinusoidal(4096, 128, dtype=torch.float64)
print("stored in 16 bits:", f"{(exact.bfloat16() - exact).abs().max():.3f}")

# %% [markdown]
# **A table among the parameters.**
# Wrapped in `nn.Parameter`, as some advise for caching or for several GPUs, the table is trained: one step of AdamW moves it.
# A buffer follows `.to(device)` as well and stays what it is.
# `pe_lab.Sinusoidal` holds no table at all and computes the rows it is asked for.

# %%
pe_lab.seed(0)
for home in (torch.nn.Parameter, torch.nn.Buffer):
    rows = home(pe_lab.sinusoidal(16, 8))
    before = rows.detach().clone()
    word = torch.nn.Parameter(torch.randn(16, 8))
    trained = [t for t in (rows, word) if t.requires_grad]
    ((rows + word) ** 2).sum().backward()
    torch.optim.AdamW(trained, lr=1e-3).step()
    print(home.__name__, f"moved by {(rows - before).abs().max():.3f}")

# %% [markdown]
# ## Exercises
#
# Replace each `...` and run the cell.
# `check` says which kind of mistake an answer makes, so a wrong answer is worth trying.

# %% [markdown]
# ::::{exercise} One entry of any table ★
# :label: ex-03-entry
#
# Write `entry(position, channel, d_model)`: the number in that cell of the table with base 10000.
# Use formula {eq}`eq-table` and do not make the table.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# Which pair does the channel belong to? Try channels 4 and 5 on paper.
# :::
#
# :::{admonition} Hint 2
# :class: dropdown hint
# The pair is `channel // 2`. Both of its channels share the angle `position * 10000 ** (-2 * pair / d_model)`.
# :::
#
# :::{admonition} Hint 3
# :class: dropdown hint
# Even channels take the sine of that angle, odd channels the cosine.
# :::
# ::::


# %% tags=["exercise"]
def entry(position, channel, d_model):
    """PE[position, channel] of a table with d_model channels."""
    ...


pe_lab.check("03-entry", entry)

# %% [markdown]
# ::::{solution} ex-03-entry
# :class: dropdown
#
# ```python
# def entry(position, channel, d_model):
#     """PE[position, channel] of a table with d_model channels."""
#     angle = position * 10000 ** (-2 * (channel // 2) / d_model)
#     return sin(angle) if channel % 2 == 0 else cos(angle)
#
#
# pe_lab.check("03-entry", entry)
# ```
# ::::

# %% [markdown]
# ::::{exercise} Proofread a table ★★
# :label: ex-03-slips
#
# Write `slips(printed, decimals)`.
# `printed` is a table for positions 0, 1, 2, … with any number of channels, printed to `decimals` decimals.
# Return the cells that are wrong, one row `[position, channel]` for each, in reading order.
# A cell is right if it is the exact value, rounded to that many decimals.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# The shape of `printed` says how many positions and channels the exact table needs.
# :::
#
# :::{admonition} Hint 2
# :class: dropdown hint
# Compare in units of the last printed digit: multiply both tables by `10**decimals` and round both to whole numbers.
# :::
#
# :::{admonition} Hint 3
# :class: dropdown hint
# `(a != b).nonzero()` lists the cells where two tables differ.
# :::
# ::::


# %% tags=["exercise"]
def slips(printed, decimals):
    """[position, channel] of every cell that is not the exact value, rounded."""
    ...


pe_lab.check("03-slips", slips)

# %% [markdown]
# ::::{solution} ex-03-slips
# :class: dropdown
#
# ```python
# def slips(printed, decimals):
#     """[position, channel] of every cell that is not the exact value, rounded."""
#     exact = pe_lab.sinusoidal(*printed.shape, dtype=torch.float64)
#     unit = 10**decimals
#     return ((unit * exact).round() != (unit * printed).round()).nonzero()
#
#
# pe_lab.check("03-slips", slips)
# ```
# ::::

# %% [markdown]
# ::::{exercise} From one order to the other ★★
# :label: ex-03-orders
#
# Write `to_halves(table)`.
# The last axis of `table` is interleaved: sine, cosine, sine, cosine, …
# Return it in halves: all sines, then all cosines.
# There may be any number of axes before the last; the last is even.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# Write down where channels 0 … 5 of a six-channel table have to go. Four channels are too few to see a mistake: why?
# :::
#
# :::{admonition} Hint 2
# :class: dropdown hint
# `table[..., 0::2]` picks every second channel.
# :::
#
# :::{admonition} Hint 3
# :class: dropdown hint
# Join the even and the odd channels along the last axis with `torch.cat`.
# :::
# ::::


# %% tags=["exercise"]
def to_halves(table):
    """Sines first, then cosines, along the last axis."""
    ...


pe_lab.check("03-orders", to_halves)

# %% [markdown]
# ::::{solution} ex-03-orders
# :class: dropdown
#
# ```python
# def to_halves(table):
#     """Sines first, then cosines, along the last axis."""
#     return torch.cat((table[..., 0::2], table[..., 1::2]), dim=-1)
#
#
# pe_lab.check("03-orders", to_halves)
# ```
# ::::

# %% [markdown]
# ::::{exercise} The smallest base for a length ★★
# :label: ex-03-base
#
# Write `base_for(length, d_model)`: the base with which the slowest pair takes exactly `length` positions for one turn.
# Any smaller base lets it wrap around within that length.
# Use the spacing of formula {eq}`eq-table`.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# The slowest pair is $i = d/2 - 1$. What is its frequency, as a power of the base $b$?
# :::
#
# :::{admonition} Hint 2
# :class: dropdown hint
# Its wavelength is $2\pi\, b^{(d-2)/d}$. Set it equal to the length.
# :::
#
# :::{admonition} Hint 3
# :class: dropdown hint
# Divide by $2\pi$ and take the power $d/(d-2)$.
# :::
# ::::


# %% tags=["exercise"]
def base_for(length, d_model):
    """The base whose slowest wavelength is `length` positions."""
    ...


pe_lab.check("03-base", base_for)

# %% [markdown]
# ::::{solution} ex-03-base
# :class: dropdown
#
# ```python
# def base_for(length, d_model):
#     """The base whose slowest wavelength is `length` positions."""
#     return (length / (2 * pi)) ** (d_model / (d_model - 2))
#
#
# pe_lab.check("03-base", base_for)
# ```
# ::::

# %% [markdown]
# ::::{exercise} Right at a million ★★★
# :label: ex-03-accurate
#
# Write `far_table(positions, d_model)`.
# `positions` is a tensor of whole numbers up to ten million; the result has one interleaved row for each.
# Every entry has to be within 1e-7 of the exact value.
# Use neither `pe_lab.sinusoidal` nor a loop over positions.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# Try the code of `usual` first and read what `check` says about it.
# :::
#
# :::{admonition} Hint 2
# :class: dropdown hint
# Two things have to be exact: the frequencies, and their products with the positions. Both need float64 from the first operation on.
# :::
#
# :::{admonition} Hint 3
# :class: dropdown hint
# `torch.arange(..., dtype=torch.float64)` for the pairs, `positions.double()` for the positions; `float()` only on the sines and cosines.
# :::
# ::::


# %% tags=["exercise"]
def far_table(positions, d_model):
    """Rows of the interleaved table, exact to one float32 rounding."""
    ...


pe_lab.check("03-accurate", far_table)

# %% [markdown]
# ::::{solution} ex-03-accurate
# :class: dropdown
#
# ```python
# def far_table(positions, d_model):
#     """Rows of the interleaved table, exact to one float32 rounding."""
#     pair = torch.arange(d_model // 2, dtype=torch.float64)
#     angles = positions[:, None].double() * 10000 ** (-2 * pair / d_model)
#     return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()
#
#
# pe_lab.check("03-accurate", far_table)
# ```
# ::::

# %% [markdown]
# ## Quiz
#
# **1.** A table has 16 channels. By which factor is each frequency smaller than the one before?
#
# - (a) 10.
# - (b) $\sqrt{10}$.
# - (c) $10000^{1/16}$.
#
# :::{admonition} Answer
# :class: dropdown
# (b): the factor is $10000^{2/16} = 10000^{1/8} = \sqrt{10}$.
# (a) is the factor for eight channels.
# (c) counts channels where pairs are meant; it would give a cosine another frequency than its sine.
# :::
#
# **2.** Which of these is true of position 0?
#
# - (a) It gets no encoding.
# - (b) Its row is as long as every other row.
# - (c) None of its components is zero.
#
# :::{admonition} Answer
# :class: dropdown
# (b), by {prf:ref}`thm-norm`.
# (a) is wrong: its row is 0, 1, 0, 1, …, and adding it changes half of the channels by 1.
# (c) is wrong: all sines of 0 are zero, half of the components.
# :::

# %% [markdown]
# **3.** A float32 table is wrong by hundredths at position one million. What mends it?
#
# - (a) The power instead of the exponential.
# - (b) Angles in float64.
# - (c) A larger base.
#
# :::{admonition} Answer
# :class: dropdown
# (b): the product of position and frequency is rounded, and float64 keeps 29 more binary digits of it.
# (a) improves the frequencies, and {numref}`fig-tables-error` shows that the table does not notice.
# (c) slows the slow pairs; the fast ones, where the error is largest, keep their large angles.
# :::
#
# **4.** You load weights that were trained with halves into code that interleaves. What happens?
#
# - (a) Nothing: scores do not depend on the order.
# - (b) An error, because shapes differ.
# - (c) Heads look at wrong places, silently.
#
# :::{admonition} Answer
# :class: dropdown
# (c): every trained matrix reads channels by number.
# (a) holds only for $\mathrm{PE}\,\mathrm{PE}^\top$, without weights in between.
# (b) is wrong: both tables have the same shape. Give the model the table that it was trained with.
# :::

# %% [markdown]
# ## Take-away
#
# - A row holds $d/2$ pairs, each the sine and the cosine of position times frequency; frequencies fall by $10000^{2/d}$ from pair to pair.
# - Every row has length $\sqrt{d/2}$ and no two rows are equal; the slowest wavelength is no capacity.
# - Compute angles in float64 and round once; exp or power makes no difference to the table.
# - Order and spacing belong to a checkpoint: a table of the other family has the right shape and the wrong columns.
#
# {numref}`fig-tables-eight` is the table to remember, with all its digits right.

# %% mystnb={"figure": {"name": "fig-tables-eight", "caption": "Eight positions and eight channels, to three decimals. From pair to pair the angle is ten times smaller: the left pair goes round once, the right one has hardly left its start."}, "image": {"alt": "Eight by eight heat map with its numbers. The two left columns swing between minus one and one, the next two change slowly, and the four on the right stay near zero for sines and near one for cosines."}}
names = [f"{f}\n{w:g}p" for w in (1, 0.1, 0.01, 0.001) for f in ("sin", "cos")]
fig = plots.heatmap(eight, annotate=True, decimals=3, xticks=names, ylabel="position p")
fig.axes[0].tick_params(axis="x", labelrotation=0, labelsize=9)
fig

# %% [markdown]
# ## Further reading
#
# - {cite:t}`vaswani2017`, section 3.5: half a page with the whole definition, and the hope that it would carry over to longer sequences.
# - {cite:t}`vaswani2018`: the library with the authors' own code; compare its spacing and order with the formula in the paper.
# - {cite:t}`tancik2020`: why networks that read a coordinate learn fine detail so much better from sines and cosines of it.
# - {cite:t}`men2024`: what happens to rotary encodings when the base is too small for the context.
#
# Next, {ref}`ch-rotate` shows what one step does to a row: it turns every pair.

# %% tags=["nbval-ignore-output"] reason="versions, machine and date differ from run to run"
pe_lab.provenance()
