# %% [markdown]
# (ch-score)=
# # Score position against position
#
# :::{div} strip
# 60 minutes to read · under 20 s of CPU · you need the dot product, the softmax, {ref}`ch-tables` and {ref}`ch-rotate`.
# :::
#
# **You will be able to**
#
# - score two positions from their distance alone, and turn scores into weights
#   (exercises {ref}`ex-06-kernel`, {ref}`ex-06-row`);
# - find where nearer stops meaning higher, for any width and base ({ref}`ex-06-rise`);
# - measure how far apart two positions are, and find the closest pair ({ref}`ex-06-twin`);
# - recognise the same curve inside RoPE ({ref}`ex-06-rope`);
# - say which projections keep a score relative, and aim one ({ref}`ex-06-look-back`).

# %% [markdown]
# ## Six tokens and no words
#
# Take six tokens whose word embeddings are all zero.
# Eight channels, one head, and no projections: query and key are both the encoding itself.
# A score can then come from position alone.
#
# Before you run the cell: which token does token 0 score higher, token 3 or token 5?

# %%
import torch

import pe_lab

torch.set_num_threads(1)

pe = pe_lab.sinusoidal(6, d_model=8, dtype=torch.float64)
scores = pe @ pe.T
scores[0].round(decimals=3)

# %% [markdown]
# Token 5 wins, 3.160 against 1.965.
# It even beats token 2.
# So the score falls, turns, and climbs back while the distance keeps growing.
# {numref}`fig-scores` shows all the pairs, and something else: every diagonal holds one number.

# %% mystnb={"figure": {"name": "fig-scores", "caption": "Scores of six positions with each other, eight channels, no words. Each diagonal holds one number, and the corners score higher than what lies between them and the main diagonal."}, "image": {"alt": "A six by six heat map, symmetric, darkest on the main diagonal at 4.000, palest three places off it at 1.965, darker again in the two corners at 3.160."}}
from pe_lab import plots

plots.heatmap(
    scores, annotate=True, decimals=3, xlabel="key position n",
    ylabel="query position m", scale="score", size=(6.2, 5.0),
)  # fmt: skip

# %% [markdown]
# This chapter asks what that curve is, how far the climb back matters,
# and what is left of it in a real attention layer.
# Move the width first, then the distance.
# At eight channels, watch the minimum at distance 3 and the climb to distance 6.
# Then widen: the climb shrinks, and look closely whether it ever goes away.
# Last, change the base and put a straight line on top.

# %%
pe_lab.explore.KernelShape()

# %% [markdown]
# ## One curve holds every score
#
# Position $m$ puts $(\sin m\omega_i, \cos m\omega_i)$ into pair $i$, where $\omega_i = b^{-2i/d}$.
# So pair $i$ adds $\sin m\omega_i \sin n\omega_i + \cos m\omega_i \cos n\omega_i$ to the score of $m$ and $n$.
# That sum is $\cos\big((m-n)\,\omega_i\big)$: the two positions are gone and their difference is left.

# %%
m, n, omega = 5, 2, pe_lab.inv_freq(8)
of_pairs = (pe[m] * pe[n]).unflatten(-1, (4, 2)).sum(dim=-1)
print(of_pairs.round(decimals=3))
print(((m - n) * omega).cos().round(decimals=3))

# %% [markdown]
# Write $\Delta = m - n$ for the difference.
# Add the pairs up and call the sum the {term}`kernel` of the encoding:
#
# $$
# K(\Delta) = \sum_{i=0}^{d/2-1} \cos(\Delta\,\omega_i)
# $$ (eq-kernel)
#
# It is a function of one number.
# `pe_lab.position_kernel` computes it without making a table.

# %%
offsets = torch.arange(8)
pe_lab.position_kernel(offsets, d_model=8).round(decimals=3)

# %% [markdown]
# These are the numbers of the first row, and two more: at distance 6 the score is 3.784, more than the 3.535 of the
# direct neighbour.
# {numref}`fig-clocks` shows why.
# Pair 0 is a clock that turns by one radian per position.
# After six positions it is nearly round, and the three slow clocks have hardly left.
# On that clock alone, position 6 is nearer to 0 than position 1 is.

# %% mystnb={"figure": {"name": "fig-clocks", "caption": "What each pair adds to the score, by distance. Only the fastest pair comes round within eight positions; its column sums are the scores."}, "image": {"alt": "A heat map with one row per pair and one column per distance from 0 to 7. The first row swings from 1 to minus 0.990 at distance 3 and back to 0.960 at distance 6; the second falls slowly; the last two stay at about 1."}}
parts = (offsets[:, None] * omega).cos()
plots.heatmap(
    parts.T, annotate=True, decimals=3, xlabel="distance Δ", scale="cos(Δ·ω)",
    yticks=[f"ω = {w:g}" for w in omega.tolist()],
)  # fmt: skip

# %% [markdown]
# ```{prf:theorem} The kernel
# :label: thm-kernel
# Let $d$ be even, $b > 1$, and let $m$, $n$ be real positions. Then
#
# 1. $\mathrm{PE}(m)\cdot\mathrm{PE}(n) = K(m-n)$;
# 2. $K(-\Delta) = K(\Delta)$;
# 3. $K(0) = d/2$, and $K(\Delta) < K(0)$ for every whole $\Delta \ne 0$.
# ```
#
# ```{prf:proof}
# 1: the sum over pairs of $\sin\alpha\sin\beta + \cos\alpha\cos\beta = \cos(\alpha-\beta)$
# with $\alpha = m\omega_i$ and $\beta = n\omega_i$. 2: the cosine is even.
# 3: every term is at most 1, so $K(\Delta) \le d/2$, with equality only if every $\Delta\omega_i$ is a multiple of
# $2\pi$. Pair 0 has $\omega_0 = 1$, so $\Delta = 2\pi k$ with $k$ whole. If $k \ne 0$ and $\Delta$ were whole,
# $\pi = \Delta / 2k$ would be a fraction, which it is not. So $\Delta = 0$.
# ```

# %% [markdown]
# A matrix with one number on each diagonal is called a {term}`Toeplitz matrix`.
# Part 1 says that the scores of consecutive positions form one, at any even width, from any starting position.
# (An odd width ends in a sine without its cosine, and then it fails.)
# Now the check: 64 positions that start at a million, at width 512.

# %%
far = torch.arange(1_000_000, 1_000_064)
table = pe_lab.score_matrix(far, d_model=512)
by_offset = pe_lab.position_kernel(far[:, None] - far, d_model=512)
print("equal to K(m − n):", torch.allclose(table, by_offset))
print("one number on each diagonal:", torch.allclose(table[1:, 1:], table[:-1, :-1]))
print("largest on the main one:", bool((table.argmax(-1) == torch.arange(64)).all()))

# %% [markdown]
# The same scores circulate with 2.266 at distance 4 and 3.161 at distance 5.
# Those are sums of terms that had been rounded to three places first.
# Round once, at the end.

# %%
rounded_first = parts.round(decimals=3).sum(dim=-1)
for distance in (4, 5):
    print(f"{distance}: {rounded_first[distance]:.3f} {parts[distance].sum():.3f}")

# %% [markdown]
# ## From scores to weights
#
# Attention turns a row of scores into weights with a softmax, after dividing by $\sqrt{d_k}$.
# Here $d_k = 8$.
# Predict before you run: does the far end, token 5, get more weight than token 2?
# And does the division make the row flatter or steeper?

# %%
print(scores.softmax(dim=-1)[0].round(decimals=3))
print((scores / 8**0.5).softmax(dim=-1)[0].round(decimals=3))

# %% [markdown]
# Token 0 weighs itself first (0.384), its neighbour second (0.241), and the far end third (0.166).
# The division flattens the row, to 0.237, 0.201 and 0.176, and keeps the order.
# {numref}`fig-weights` shows that the rows differ: each is another piece of the same curve, normalised on its own.

# %% mystnb={"figure": {"name": "fig-weights", "caption": "Attention weights from position alone, without and with the division by the root of the width. Scores are the same along a diagonal; weights are not, for each row has its own sum."}, "image": {"alt": "Two six by six heat maps of weights. Left, undivided: 0.384 in the corners of the main diagonal, 0.050 three places off it. Right, divided: paler and flatter, 0.237 in those corners."}}
weights = [scores.softmax(-1), (scores / 8**0.5).softmax(-1)]
plots.heatmaps(
    weights, titles=["undivided", "divided by √8"], annotate=True, decimals=3,
    xlabel="key position n", ylabel="query position m", scale="weight", columns=2,
)  # fmt: skip

# %% [markdown]
# How much the division matters depends on the width, because $K(0) = d/2$ grows with it.
# Take 64 positions and read the weight that position 32 gives to itself.

# %%
for d in (8, 64, 512):
    row = pe_lab.position_kernel(torch.arange(64) - 32, d)
    plain, divided = row.softmax(-1)[32], (row / d**0.5).softmax(-1)[32]
    print(f"d = {d:3}: {plain:.3f} undivided, {divided:.3f} divided")

# %% [markdown]
# At width 512 the undivided row is all but closed on itself, 0.998.
# Divided, it gives 0.215 to itself and the rest to others.
# Now the same weights from PyTorch's own layer: one head, no words, and projections set to the identity.

# %%
layer = torch.nn.MultiheadAttention(8, num_heads=1, bias=False, dtype=torch.float64)
with torch.no_grad():
    layer.in_proj_weight.copy_(torch.eye(8).repeat(3, 1))
_, theirs = layer(pe, pe, pe)
torch.allclose(theirs, (scores / 8**0.5).softmax(-1))

# %% [markdown]
# ## The rebound
#
# A kernel that fell with every step would make nearer positions score higher, always.
# At eight channels it fails at the step from 3 to 4.
# It is tempting to blame the small width.
# But no width and no base cures it.

# %% [markdown]
# ```{prf:theorem} No kernel falls for ever
# :label: thm-rebound
# For no even $d$ and no base $b > 1$ is there a $\Delta_0$ such that
# $K(\Delta+1) \le K(\Delta)$ for all whole $\Delta \ge \Delta_0$.
# ```
#
# ```{prf:proof}
# Suppose there is. $K$ is bounded, so $K(\Delta)$ has a limit $L$ as $\Delta$ grows, and the averages of $K$ and of
# $K^2$ over $\Delta = 1, \dots, N$ tend to $L$ and $L^2$.
#
# We compute these averages. If $\omega$ is not a multiple of $2\pi$, then
# $\big|\sum_{\Delta=1}^{N} \cos\Delta\omega\big| \le 1/|\sin(\omega/2)|$ for all $N$, so the average of
# $\cos\Delta\omega$ tends to 0. Every $\omega_i$ lies in $(0, 1]$. So $L = 0$.
#
# Next, $K^2$ is half the sum over all $i$, $j$ of $\cos\Delta(\omega_i-\omega_j)$ and
# $\cos\Delta(\omega_i+\omega_j)$.
# The sums $\omega_i + \omega_j$ lie in $(0, 2]$ and average to 0. So do the differences, in $(-1, 1)$, unless
# $i = j$, when the cosine is 1. That happens $d/2$ times. So $L^2 = d/4 > 0$, a contradiction.
# ```

# %% [markdown]
# The two averages of the proof, over a million distances at $d = 8$: the first should vanish,
# the second should be $d/4 = 2$.

# %%
many = pe_lab.position_kernel(torch.arange(1, 1_000_001), d_model=8)
print("mean of K vanishes:", bool(many.mean().abs() < 0.01))
print(f"mean of K²: {many.square().mean():.2f}")

# %% [markdown]
# The theorem says that a rise comes.
# It does not say when, or how high.
# So we look: the first $\Delta$ from which the next step goes up, the size of that step as a share of $K(0)$, and the
# highest climb above an earlier low within 512 positions.

# %%
def rises(d, base=10000.0, reach=513):
    curve = pe_lab.position_kernel(torch.arange(reach), d, base=base)
    first = int((curve.diff() > 0).nonzero()[0])
    climb = (curve - curve.cummin(dim=0).values).max()
    return first, (curve.diff()[first] / curve[0]).item(), (climb / curve[0]).item()


for d in (8, 64, 512, 1024, 2048, 4096):
    print("d = {:4}: from {:3} by {:.1e}, highest climb {:.1e}".format(d, *rises(d)))

# %% [markdown]
# At $d = 512$ the first rise is the step from 43 to 44, and it is tiny: $4.6 \times 10^{-5}$ of $K(0)$.
# Later climbs within 512 positions reach 6.0 % of it, 15.5 units of raw score.
# So the rebound of the six-token example is mostly a matter of four clocks.
# It shrinks with more pairs, and it never quite leaves.

# %%
top, third = pe_lab.position_kernel(0, 512), rises(512)[2]
wide = pe_lab.position_kernel(torch.tensor([43, 44]), 512)
print(f"highest climb: {third * top:.1f} of {top:.0f}")
print("K(43), K(44):", wide.round(decimals=3))

# %% [markdown]
# A larger base slows the clocks, so it should put off the rebound.
# Predict: at width 512, where is the first rise with base $10^6$ instead of $10^4$?

# %%
for base in (10.0, 100.0, 1e3, 1e4, 1e5, 1e6):
    first, step, climb = rises(512, base)
    near = pe_lab.position_kernel(100, 512, base=base) / 256
    print(f"base {base:9,.0f}: from {first:2}, climb {climb:.2f}, K(100) {near:5.2f}")

# %% [markdown]
# It comes earlier, at 24.
# The fastest clock has $\omega_0 = 1$ whatever the base, and comes round every $2\pi$ positions.
# A larger base spreads the same clocks over a longer range, so the fast ones have fewer companions to drown them.
# (A small base has its own trouble: the slow clocks come round as well.)
# What a large base does buy is height: $K(100)/K(0)$ goes from 0.44 to 0.63.

# %% [markdown]
# ## What many pairs do
#
# With more pairs at a fixed base, the clocks fill the range from $1/b$ to 1 evenly on a log scale.
# The mean over clocks then becomes an integral.
# Write $\omega = b^{-t}$ with $t$ from 0 to 1:
#
# $$
# \begin{aligned}
# \frac{K(\Delta)}{K(0)} \longrightarrow{} & \int_0^1 \cos(\Delta\, b^{-t})\,dt \\
# ={} & \frac{1}{\ln b}\int_{\Delta/b}^{\Delta} \frac{\cos x}{x}\,dx
# \end{aligned}
# $$ (eq-limit)

# %% [markdown]
# Read off two facts.
# For $1 \ll \Delta \ll b$ the integral is $\ln(b/\Delta) - \gamma$ up to small terms, with Euler's $\gamma = 0.577$.
# So the limit falls as a straight line over $\ln\Delta$: $1 - (\ln\Delta + \gamma)/\ln b$.
# And its slope is $\big(\cos\Delta - \cos(\Delta/b)\big)/(\Delta\ln b)$,
# positive (for $\Delta < \pi b$) only where $\Delta$ lies within $\Delta/b$ of a multiple of $2\pi$.
# With ever more pairs, almost no rebound is left at distances far below $b$.

# %%
import math

gamma, some = 0.5772157, torch.tensor([10, 100, 512, 1000, 2000])
line = 1 - (some.log() + gamma) / math.log(10000)
for d in (512, 8192):
    print(d, (pe_lab.position_kernel(some, d) / (d / 2)).round(decimals=3).tolist())
print("line", [round(x, 3) for x in line.tolist()])

# %% [markdown]
# So the large climbs of a finite table come from the gaps between its clocks.
# The widest gap is between the two fastest, 1 and $\omega_1$.
# After $2\pi/(1 - \omega_1)$ positions they are a whole turn apart and point the same way again.
# Compare the highest climb up to half that distance, and up to twice it:

# %%
for d, base in ((8, 1e4), (64, 1e4), (512, 1e4), (512, 1e6)):
    first, second = pe_lab.inv_freq(d, base=base)[:2].tolist()
    meet = 2 * math.pi / (first - second)
    curve = pe_lab.position_kernel(torch.arange(int(2 * meet)), d, base=base)
    climbs = (curve - curve.cummin(dim=0).values) / curve[0]
    half, twice = climbs[: int(meet / 2)].max(), climbs.max()
    print(f"d = {d:3}, base {base:.0e}: meet at {meet:3.0f}, {half:.3f}, {twice:.3f}")

# %% [markdown]
# Well before the fastest clocks meet there is hardly a climb; around the meeting, the ripples set in.
# Width moves the meeting out, from 7 to 25 to 178 positions.
# A larger base widens the gaps and moves it in, to 120, which fits the surprise of the last section.

# %% mystnb={"figure": {"name": "fig-kernels", "caption": "The kernel at three widths, as a share of its height, and the straight line in the logarithm of the distance towards which it tends. Few pairs swing about it; many follow it."}, "image": {"alt": "Three curves over a logarithmic axis of distances, from 1 to 160. The one for width 8 swings between zero and nearly its full height, the one for width 64 ripples about a dashed falling line, the one for width 512 lies on that line."}}
ROLES = {"d = 8": "other", "d = 64": "highlight", "d = 512": "position"}
x = torch.arange(1, 161)
curves = {f"d = {d}": pe_lab.position_kernel(x, d) / (d / 2) for d in (8, 64, 512)}
curves["line"] = 1 - (x.log() + gamma) / math.log(10000)
plots.lines(
    x, curves, colors=ROLES | {"line": "content"}, dashed=["line"], xlog=True,
    xlabel="distance Δ", ylabel="K(Δ) / K(0)",
)  # fmt: skip

# %% [markdown]
# {numref}`fig-kernels` settles two widespread statements.
# The kernel does *not* decay to zero: at width 512 it is still 0.437 of its height at distance 100 and 0.276 at 512,
# so far positions are not orthogonal.
# And it does not merely oscillate: below the ripples is a slow, logarithmic fall.
# Two more numbers: where it first turns negative, and how many of its first 512 steps go up.

# %%
curve = pe_lab.position_kernel(torch.arange(4001), 512)
print("first negative value at Δ =", int((curve < 0).nonzero()[0]))
print("steps up:", int((curve[:513].diff() > 0).sum()), "of 512")

# %% [markdown]
# The small steps up are many, 202 of 512.
# What they do *not* mean is that a model mixes up two positions.
# A score is one number, but an encoding is a whole vector, and a projection can weigh its clocks one by one.
# The next two sections look at the vector, then at the projection.

# %% [markdown]
# ## How far apart positions are
#
# Every encoding has the same length, $\sqrt{d/2}$.
# So the distance of two of them is the kernel turned upside down:
#
# $$
# \begin{aligned}
# & \lVert \mathrm{PE}(m) - \mathrm{PE}(n) \rVert^2 \\
# & \quad = \tfrac d2 + \tfrac d2 - 2K(m-n) = d - 2K(\Delta)
# \end{aligned}
# $$ (eq-distance)
#
# Each rise of the kernel is a place where a farther position is nearer in space.

# %%
def distance(offset, d):
    return (d - 2 * pe_lab.position_kernel(offset, d)).clamp(min=0).sqrt()


rows = pe_lab.sinusoidal(64, 64, dtype=torch.float64)
direct = (rows[:, None] - rows).norm(dim=-1)
steps = torch.arange(64)
print(torch.allclose(direct, distance(steps[:, None] - steps, 64), atol=1e-6))
print(distance(torch.arange(1, 7), 64).round(decimals=3))

# %% [markdown]
# At width 64 the distance grows from 1.472 to 4.122 at offset 5, and dips to 4.109 at offset 6.
# {numref}`fig-distance` shows the map at two widths.
# At eight channels the dip is a trough: offset 6 is closer than the neighbour.
# At 64 it has almost closed.

# %% mystnb={"figure": {"name": "fig-distance", "caption": "Distance of each position to each other, in units of the common length. At eight channels positions six apart are neighbours again; at 64 the map is nearly flat away from the diagonal."}, "image": {"alt": "Two 64 by 64 maps. Left, width 8: light stripes parallel to the main diagonal, six places apart. Right, width 64: one light band along the diagonal, and an almost even tone elsewhere that darkens slowly towards the corners."}}
apart = steps[:, None] - steps
maps = [distance(apart, d) / (d / 2) ** 0.5 for d in (8, 64)]
plots.heatmaps(
    maps, titles=["d = 8", "d = 64"], xlabel="position n", ylabel="position m",
    scale="distance / length", columns=2,
)  # fmt: skip

# %% [markdown]
# No two whole positions share an encoding: part 3 of {prf:ref}`thm-kernel` makes every distance positive.
# But positive is not large.
# Infinitely many positions on one sphere cannot all keep their distance, so some pair comes as close as you like.
# How close, within a given length?

# %%
def closest(length, d):
    curve = pe_lab.position_kernel(torch.arange(1, length), d)
    best = int(curve.argmax()) + 1
    return f"{distance(best, d):.3f} (offset {best})"


for d in (8, 64, 512):
    print(f"d = {d:3}:", ", ".join(closest(length, d) for length in (6, 64, 512, 8192)))

# %% [markdown]
# At widths 64 and 512 the nearest stranger is always the neighbour, at distance 1.472 and 3.714.
# At eight channels it is the position 63 steps on, and later the one 6283 steps on, only 0.186 away:
# ten turns of the first clock and one of the second, then a thousand turns and a hundred.
# Four clocks are too few for 8192 positions.

# %% [markdown]
# It is often said that sines are binary digits made smooth.
# Here is what the smoothing buys.
# A binary counter flips all four bits from 7 to 8; the encoding moves by the same amount at every step.

# %%
bits = torch.tensor([[p >> bit & 1 for bit in range(4)] for p in range(16)])
print("bits flipped:", (bits[1:] != bits[:-1]).sum(-1).tolist())
for d in (8, 64, 512):
    share = distance(1, d) / (d / 2) ** 0.5
    print(f"d = {d:3}: every step moves {share:.0%} of the length")

# %% [markdown]
# ## When projections stand in between
#
# A layer does not multiply encodings.
# It multiplies $W_Q\,\mathrm{PE}(m)$ and $W_K\,\mathrm{PE}(n)$, so the position part of a score is
#
# $$
# \begin{aligned}
# s(m, n) &= \mathrm{PE}(m)^\top A\,\mathrm{PE}(n), \\
# A &= W_Q^\top W_K .
# \end{aligned}
# $$ (eq-projected)
#
# One often reads that this still depends on $|m-n|$ alone, whatever was learned.
# Predict, then run: is the first row of a random example like its second row, shifted by one?

# %%
def gaussian(d, generator):
    return torch.randn(d, d, generator=generator, dtype=torch.float64)


generator = torch.Generator().manual_seed(0)
w_q, w_k = gaussian(64, generator), gaussian(64, generator)
projected = rows @ w_q.T @ w_k @ rows.T / 64
print(projected[0, :5].round(decimals=2))
print(projected[1, 1:6].round(decimals=2))

# %% [markdown]
# It is not.
# To say how far from Toeplitz a matrix is, we split its variance.
# Replace each score by the mean of its diagonal; what is left over is the part that a function of $m-n$ cannot explain.
# Its share of the variance is 0 for a Toeplitz matrix.

# %%
def share_within(scores):
    """Share of the variance of the scores that lies within diagonals."""
    place = torch.arange(len(scores))
    diagonal = (place[:, None] - place + len(scores) - 1).flatten()
    flat = scores.flatten()
    means = torch.bincount(diagonal, flat) / torch.bincount(diagonal)
    return ((flat - means[diagonal]) ** 2).mean().item() / flat.var(correction=0).item()


print(f"A = I: {share_within(rows @ rows.T):.2f}")
print(f"random: {share_within(projected):.2f}")

# %% [markdown]
# One draw proves little.
# So we draw five times, at three widths, in four ways: $W_Q$ and $W_K$ independent; both orthogonal and independent;
# $W_K = W_Q$; and the identity plus a tenth of noise.
# The cell prints mean, smallest and largest share over 128 positions.

# %%
def independent(d, g):
    return gaussian(d, g).T @ gaussian(d, g)


def orthogonal(d, g):  # a product of orthogonal matrices is orthogonal
    return torch.linalg.qr(gaussian(d, g)).Q


def tied(d, g):
    w = gaussian(d, g)
    return w.T @ w


def near_identity(d, g):
    return torch.eye(d, dtype=torch.float64) + 0.1 * gaussian(d, g)

# %%
def shares(draw, d, seeds=5):
    pe = pe_lab.sinusoidal(128, d, dtype=torch.float64)
    draws = [draw(d, torch.Generator().manual_seed(s)) for s in range(seeds)]
    return torch.tensor([share_within(pe @ a @ pe.T) for a in draws])


print(" " * 14, *(f"d = {d:<13}" for d in (8, 64, 512)))
for draw in (independent, orthogonal, tied, near_identity):
    found = [shares(draw, d) for d in (8, 64, 512)]
    cells = [f"{s.mean():.2f} [{s.min():.2f}, {s.max():.2f}]" for s in found]
    print(f"{draw.__name__:14}", *cells)

# %% [markdown]
# So most of the variance lies within diagonals, *if* the two matrices are drawn independently.
# With tied matrices the share falls from 0.60 at 8 channels to 0.08 at 512:
# a random map into many dimensions nearly keeps the dot products of a fixed set of vectors
# (the lemma of Johnson and Lindenstrauss).
# There is no single figure to quote.

# %% [markdown]
# PyTorch's own layer draws $W_Q$ and $W_K$ independently, and splits them into heads.
# The shares of its eight fresh heads lie in the range of the first row.

# %%
pe_lab.seed(0)
layer = torch.nn.MultiheadAttention(64, num_heads=8, bias=False, dtype=torch.float64)
w_q, w_k, _ = layer.in_proj_weight.detach().chunk(3)
pe128 = pe_lab.sinusoidal(128, 64, dtype=torch.float64)
q, k = ((pe128 @ w.T).unflatten(-1, (8, 8)).transpose(0, 1) for w in (w_q, w_k))
print([round(share_within(head), 2) for head in q @ k.mT])

# %% [markdown]
# What fills the diagonals with variance?
# The slow clocks hardly move within 128 positions, so every encoding is a large constant plus something small.
# The constant makes whole columns of the score high or low: some keys attract every query.
# Rows and columns alone explain about two thirds.

# %%
def share_of_rows_and_columns(scores):
    centred = scores - scores.mean()
    rest = centred - centred.mean(0) - centred.mean(1, keepdim=True)
    return 1 - rest.var().item() / scores.var().item()


draws = [independent(64, torch.Generator().manual_seed(s)) for s in range(10)]
found = [share_of_rows_and_columns(pe128 @ a @ pe128.T) for a in draws]
print(f"{sum(found) / len(found):.2f}")

# %% [markdown]
# ## Which projections keep the score relative
#
# The identity does, and random matrices do not.
# There is an exact answer.
# It uses the rotation of {ref}`ch-rotate`: $\mathrm{PE}(p+t) = M_t\,\mathrm{PE}(p)$.

# %% [markdown]
# ```{prf:theorem} Commute with the rotations
# :label: thm-commute
# The score $\mathrm{PE}(m)^\top A\,\mathrm{PE}(n)$ depends on $m - n$ only, for all whole $m$ and $n$, if and only if
# $A M_t = M_t A$ for every whole $t$. Then $A$ consists of $2\times2$ blocks
# $\begin{pmatrix} \alpha_i & \beta_i \\ -\beta_i & \alpha_i \end{pmatrix}$ on the diagonal, and the score is
# $\sum_i \alpha_i \cos\Delta\omega_i + \beta_i \sin\Delta\omega_i$.
# ```
#
# ```{prf:proof}
# *If.* As $\mathrm{PE}(p+t) = M_t\,\mathrm{PE}(p)$, moving both positions by $t$ replaces $A$ by $M_t^\top A M_t$.
# That is $M_t^\top M_t A = A$, as $M_t$ is orthogonal.
#
# *Only if.* Now $\mathrm{PE}(m)^\top (M_t^\top A M_t - A)\,\mathrm{PE}(n) = 0$ for all $m$, $n$. The encodings of
# positions $0, \dots, d-1$ span $\mathbb{R}^d$: in the basis $e^{\pm i p \omega_i}$ they form a Vandermonde matrix
# with nodes $e^{\pm i \omega_i}$, which are distinct as $0 < \omega_i \le 1$. So $M_t^\top A M_t = A$, that is,
# $A M_t = M_t A$.
#
# *Blocks.* Take $t = 1$. Block $(i, j)$ of $A$ satisfies $R_i B = B R_j$ with rotations $R_i$, $R_j$ by $\omega_i$,
# $\omega_j$. For $i \ne j$ these have no eigenvalue in common, so $B = 0$. For $i = j$, what commutes with a rotation
# that is not $\pm I$ is $\alpha I + \beta J$, a scaled rotation. The score follows by multiplying
# out one block. Beside $\beta$ stands $\sin m\omega\cos n\omega - \cos m\omega\sin n\omega$, which is
# $\sin\Delta\omega$.
# ```

# %% [markdown]
# So $d$ numbers out of $d^2$ keep the score relative, and nothing draws them by chance.
# The cell builds such an $A$ with random blocks, then an orthogonal $W$ used for both query and key,
# where $A = W^\top W = I$.
# {numref}`fig-broken` compares.

# %%
blocks = [torch.tensor([[a, b], [-b, a]]) for a, b in gaussian(64, generator)[:32, :2]]
commuting = torch.block_diag(*blocks)
w = orthogonal(64, generator)
for a in (commuting, w.T @ w):
    print("Toeplitz:", share_within(pe128 @ a @ pe128.T) < 1e-12)

# %% mystnb={"figure": {"name": "fig-broken", "caption": "Position scores through four projections, each divided by its largest entry. Stripes along the diagonal mean that the score is relative; crossing bands mean that it is not."}, "image": {"alt": "Four 64 by 64 heat maps. Identity: stripes parallel to the diagonal, darkest on it. Random: rectangular blotches, no diagonal. Tied: a diagonal over faint bands. Commuting blocks: clear diagonal stripes of both signs, not symmetric."}}
made = {
    "A = I": torch.eye(64, dtype=torch.float64),
    "independent": independent(64, torch.Generator().manual_seed(1)),
    "tied": tied(64, torch.Generator().manual_seed(1)),
    "commuting blocks": commuting,
}
seen = [rows @ a @ rows.T for a in made.values()]
plots.heatmaps(
    [s / s.abs().max() for s in seen], titles=list(made), xlabel="key position n",
    ylabel="query position m", scale="score / largest", columns=2,
)  # fmt: skip

# %% [markdown]
# ## Left and right
#
# The kernel is even: it gives $m - n$ and $n - m$ the same score.
# On its own it cannot tell the word before from the word after {cite:p}`yan2019`.
# The vector can, because the sines $\beta_i \sin\Delta\omega_i$ of {prf:ref}`thm-commute` change sign with $\Delta$.
# A projection has to bring them in.

# %% [markdown]
# Take $W_Q = M_{-3}$ and $W_K = I$.
# The query becomes $\mathrm{PE}(m-3)$, so the score is $K(\Delta - 3)$ with its peak at $\Delta = 3$:
# this head looks three positions back, at every position.
# Check it on 128 positions at width 64, and read the weight that position 64 puts there.

# %%
query = pe128 @ pe_lab.rotation_matrix(-3, 64).T
back = query @ pe128.T
place = torch.arange(128)
print("peak three back:", bool((back.argmax(-1)[3:] == place[:-3]).all()))
print("relative:", share_within(back) < 1e-12)
for divisor in (1, 8):
    print(f"divided by {divisor}: {(back / divisor).softmax(-1)[64, 61]:.3f}")

# %% [markdown]
# So the sinusoidal encoding does *not* make positions attend to near ones.
# With $A = I$ they mostly would.
# With $A = M_3$ a head looks back, with $A = -I$ it looks away, and with a random $A$ it does none of these.
# What holds is weaker: one matrix serves all positions, if training finds it.
# And with words in the input, this term is one of four; {ref}`ch-add` takes them apart.

# %%
away = -(pe128 @ pe128.T)
print("A = −I, position 0 prefers position", int(away[0].argmax()))

# %% [markdown]
# ## The same curve inside RoPE
#
# RoPE {cite:p}`su2021` turns queries and keys *after* the projections.
# Whatever $W_Q$ and $W_K$ made of the words, position enters through $m - n$ only.
# Which curve does it put into the score?
# Take the plainest query and key there are: all ones, eight channels.

# %%
def turned(x, positions, layout="interleaved"):
    frequencies = pe_lab.inv_freq(x.shape[-1])
    cos, sin = pe_lab.rope_table(positions, frequencies, dtype=torch.float64)
    x = x.expand(1, 1, len(positions), -1)
    return pe_lab.apply_rope(x, cos, sin, layout=layout)[0, 0]


ones = turned(torch.ones(8, dtype=torch.float64), torch.arange(8))
print((ones @ ones.T)[0].round(decimals=3))
print((2 * pe_lab.position_kernel(offsets, 8)).round(decimals=3))

# %% [markdown]
# Twice the kernel, to the last digit.
# To see why, read pair $i$ of the query as a complex number $q_i$, and of the key as $k_i$.
# RoPE multiplies them by $e^{\mathrm{i} m\omega_i}$ and $e^{\mathrm{i} n\omega_i}$.
# The dot product of two complex numbers is the real part of one times the conjugate of the other:
#
# $$
# \begin{aligned}
# s(m, n) &= \sum_i \operatorname{Re}\big(q_i \bar k_i\, e^{\mathrm{i}\Delta\omega_i}\big) \\
# &= \sum_i |q_i||k_i| \cos(\Delta\omega_i + \varphi_i)
# \end{aligned}
# $$ (eq-rope)

# %% [markdown]
# Here $\varphi_i = \arg q_i - \arg k_i$ is the angle from key to query.
# For all ones, $q_i = k_i = 1 + \mathrm{i}$, so $|q_i||k_i| = 2$ and the phases cancel: $s = 2K(\Delta)$,
# or $2K(\Delta)/\sqrt{d_k}$ after the division.
# In general each pair brings its own size and phase.
# A single cosine $|q||k|\cos(\cdot)$ is right for one pair only.
# Check the sum for random queries and keys, both layouts, and far shifts.

# %%
generator = torch.Generator().manual_seed(1)
q, k = torch.randn(2, 8, generator=generator, dtype=torch.float64)
pairs = torch.view_as_complex(torch.stack((q, k)).unflatten(-1, (4, 2)))
turn = torch.polar(torch.ones(4, dtype=torch.float64), 3 * pe_lab.inv_freq(8))
predicted = (pairs[0] * pairs[1].conj() * turn).real.sum()
for shift in (0, 100, 10_000):
    at = torch.tensor([shift + 3, shift])
    score = turned(q, at)[0] @ turned(k, at)[1]
    print(shift, torch.allclose(score, predicted))
for layout in ("half", "interleaved"):
    x = turned(torch.ones(64, dtype=torch.float64), place, layout)
    print(layout, torch.allclose(x @ x.T / 2, pe128 @ pe128.T))

# %% [markdown]
# So RoPE wraps exactly as the sinusoidal encoding does.
# One often reads that a larger base keeps its angles from wrapping.
# The fastest pair turns by one radian per position at any base; only the others slow down.

# %%
for base in (1e4, 5e5):
    periods = 2 * math.pi / pe_lab.inv_freq(128, base=base)[[0, 1, 16]]
    print(f"base {base:7,.0f}, periods of pairs 0, 1 and 16:", end=" ")
    print(f"{periods.round(decimals=2).tolist()}, first rise {rises(128, base)[0]}")

# %% [markdown]
# Nor does RoPE make far keys score lower as such.
# The curve appears because query and key are *equal*.
# For independent random ones the mean score is zero at every distance.
# ({cite:t}`barbero2025` dispute the belief in decay on a trained model.)
# Ten thousand random pairs, at four distances:

# %%
q, k = torch.randn(2, 10_000, 64, generator=generator, dtype=torch.float64)
q = torch.view_as_complex(q.unflatten(-1, (32, 2)))
k = torch.view_as_complex(k.unflatten(-1, (32, 2)))
for offset in (0, 1, 10, 100):
    angle = torch.exp(1j * offset * pe_lab.inv_freq(64))
    mean = (q * k.conj() * angle).real.sum(-1).mean() / 8
    print(f"{offset:3}: near zero, {bool(mean.abs() < 0.05)}")

# %% [markdown]
# ## A straight line on top
#
# ALiBi {cite:p}`press2022` gives up on waves.
# It leaves queries and keys alone and adds $-m_h\,(m - n)$ to the scaled score of head $h$, with fixed slopes $m_h$.
# (Where keys after the query are visible it must be $|m - n|$, or they would be rewarded.)
# That line never turns.
# First the slopes, for eight heads: each is half of the one before.

# %%
slopes = pe_lab.alibi_slopes(8)
print([f"1/{1 / slope:.0f}" for slope in slopes.tolist()])
now, before = torch.tensor([64]), torch.arange(64, -1, -1)
bias = pe_lab.alibi_bias(now, before, slopes)[0, :, 0]
print(bias[3, 1:5].tolist())

# %% [markdown]
# To compare, both must be in the same unit: score as it enters the softmax.
# That is $K(\Delta)/\sqrt{d}$ for the encoding and the bias itself for ALiBi.
# The softmax ignores what is constant along a row, so every curve in {numref}`fig-alibi` may be moved to start at zero.
# (The explorable above measures its line in units of $K(0)$ instead.)

# %% mystnb={"figure": {"name": "fig-alibi", "caption": "What distance takes off a score: the sinusoidal kernel at three widths, divided by the root of the width, and ALiBi's lines for three of eight heads, dashed. All start at zero."}, "image": {"alt": "Falling curves over distances from 0 to 64. The kernels fall fast at first and then level off, the one for width 8 going up and down, the one for width 512 ending lowest of the three. The dashed lines are straight and end at minus 4, minus 2 and minus 1."}}
curves = {
    f"d = {d}": (pe_lab.position_kernel(torch.arange(65), d) - d / 2) / d**0.5
    for d in (8, 64, 512)
}
curves |= {f"m = 1/{2 ** (h + 1)}": bias[h] for h in (3, 4, 5)}
plots.lines(
    torch.arange(65), curves, dashed=list(curves)[3:], xlabel="distance Δ",
    ylabel="score, less that at Δ = 0",
    colors=dict.fromkeys(curves, "content") | ROLES,
)  # fmt: skip

# %% [markdown]
# Exponentiate, and the difference gets a name.
# A line becomes a factor per step: if the words say nothing, weights fall geometrically,
# and 99 % of them lie within $\ln(100)/m$ positions.
# The kernel is a logarithm, so its weights fall as a *power* of the distance,
# with exponent $-\sqrt d / (2\ln b)$.
# Fit it at width 512:

# %%
x = torch.arange(1, 1001).double().log()
y = pe_lab.position_kernel(torch.arange(1, 1001), 512) / 512**0.5
centred = x - x.mean()
print(f"fitted {(centred @ y / (centred @ centred)).item():.2f}")
print(f"predicted {-(512**0.5) / (2 * math.log(10000)):.2f}")
print([round(math.log(100) / m, 1) for m in (1 / 2, 1 / 16, 1 / 256)])

# %% [markdown]
# A line never turns, but the *total* is the line plus whatever the words say.
# Monotone bias is not monotone attention: a strong match far away can still win.

# %%
content = torch.randn(65, generator=generator, dtype=torch.float64)
total = content + bias[3]
print("bias falls at every step:", bool((bias[3].diff() < 0).all()))
print("total falls at every step:", bool((total.diff() < 0).all()))

# %% [markdown]
# ## Common mistakes
#
# **Distances by `torch.cdist`.** For more than 25 rows its default computes squares and subtracts,
# which is the formula of equation {eq}`eq-distance`.
# In float32 a position then has a distance to itself.

# %%
pe32 = pe_lab.sinusoidal(64, 64)
wrong = torch.cdist(pe32, pe32)
right = torch.cdist(pe32, pe32, compute_mode="donot_use_mm_for_euclid_dist")
print("diagonal is zero:", bool((wrong.diagonal() == 0).all()), end=" → ")
print(bool((right.diagonal() == 0).all()))

# %% [markdown]
# **ALiBi slopes that start right and go wrong.** A listing in circulation continues $2^{-8/H}$ with $2^{-9/H}$.
# The exponent grows by $8/H$ per head, so that the last slope is $2^{-8}$.

# %%
wrong = [2 ** (-(8 + h) / 8) for h in range(8)]
right = [2 ** (-8 * h / 8) for h in range(1, 9)]
print([round(slope, 4) for slope in wrong])
print([round(slope, 4) for slope in right], right == slopes.tolist())

# %% [markdown]
# **ALiBi by `tril`.** `torch.tril` leaves zeros above the diagonal.
# A zero is no mask: future keys get no penalty at all.
# Row 2 of six equal tokens, slope one half:

# %%
distances = (torch.arange(6)[:, None] - torch.arange(6)).abs()
wrong = torch.tril(-0.5 * distances)
future = torch.ones(6, 6, dtype=torch.bool).triu(1)
right = (-0.5 * distances).masked_fill(future, -math.inf)
print(wrong.softmax(-1)[2].round(decimals=3))
print(right.softmax(-1)[2].round(decimals=3))

# %% [markdown]
# **RoPE frequencies from the wrong width.** The table is made for one head: $d$ is `head_dim`, not `d_model`.
# With 768 in place of 64, only the fast clocks are left.

# %%
wrong = pe_lab.inv_freq(768)[:32]
right = pe_lab.inv_freq(64)
print(f"slowest clock: {wrong[-1]:.3f} against {right[-1]:.1e}")
for offset in (10, 20):
    print(offset, [f"{(offset * w).cos().mean():.2f}" for w in (wrong, right)])

# %% [markdown]
# **RoPE by `torch.rot90`.** That function turns the *axes* of a tensor by a quarter turn, as one turns a photograph.
# It knows no angle.

# %%
x = torch.arange(8.0).view(2, 4)
print(tuple(torch.rot90(x).shape), tuple(turned(x[0].double(), place[:2]).shape))

# %% [markdown]
# ## Exercises
#
# Each exercise has three hints and a solution.
# `pe_lab.check` does not only say whether an answer is right; where it can, it names the kind of mistake.

# %% [markdown]
# ````{exercise} The kernel, by hand ★
# :label: ex-06-kernel
#
# Write `kernel(offset, d_model)`, the score of two positions that are `offset` apart, from equation {eq}`eq-kernel` with base
# 10000. Do not call `pe_lab.position_kernel`, and make no table.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# How many clocks are there? One for each *pair* of channels.
# :::
# :::{admonition} Hint 2
# :class: dropdown hint
# `torch.arange(0, d_model, 2)` runs over $2i$. Make it float64.
# :::
# :::{admonition} Hint 3
# :class: dropdown hint
# The frequencies are `10000 ** (-two_i / d_model)`. Multiply by the offset, take cosines, add up.
# :::
# ````

# %% tags=["exercise"]
def kernel(offset, d_model):
    ...


pe_lab.check("06-kernel", kernel)

# %% [markdown]
# ````{solution} ex-06-kernel
# :class: dropdown
#
# ```python
# def kernel(offset, d_model):
#     two_i = torch.arange(0, d_model, 2, dtype=torch.float64)
#     omega = 10000 ** (-two_i / d_model)
#     return (offset * omega).cos().sum()
#
#
# pe_lab.check("06-kernel", kernel)
# ```
# ````

# %% [markdown]
# ````{exercise} A row of weights ★
# :label: ex-06-row
#
# Write `row(query, length, d_model)`: the attention weights that position `query` gives to positions
# 0 … `length` − 1 when all words are zero and the projections are the identity. Divide by $\sqrt{d}$.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# The score of key $n$ is $K(\text{query} - n)$.
# :::
# :::{admonition} Hint 2
# :class: dropdown hint
# `pe_lab.position_kernel` takes a tensor of offsets.
# :::
# :::{admonition} Hint 3
# :class: dropdown hint
# Divide the scores by `d_model**0.5`, then `.softmax(dim=-1)`.
# :::
# ````

# %% tags=["exercise"]
def row(query, length, d_model):
    ...


pe_lab.check("06-row", row)

# %% [markdown]
# ````{solution} ex-06-row
# :class: dropdown
#
# ```python
# def row(query, length, d_model):
#     offsets = query - torch.arange(length)
#     scores = pe_lab.position_kernel(offsets, d_model)
#     return (scores / d_model**0.5).softmax(dim=-1)
#
#
# pe_lab.check("06-row", row)
# ```
# ````

# %% [markdown]
# ````{exercise} Where the kernel first rises ★★
# :label: ex-06-rise
#
# Write `first_rise(d_model, base)`: the smallest $\Delta \ge 0$ with $K(\Delta + 1) > K(\Delta)$. It lies below 1000 in
# every case that is tried.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# Compute the kernel at all distances from 0 to 1000 in one call.
# :::
# :::{admonition} Hint 2
# :class: dropdown hint
# `.diff()` gives the steps; entry $\Delta$ is the step *from* $\Delta$.
# :::
# :::{admonition} Hint 3
# :class: dropdown hint
# `(steps > 0).nonzero()[0]` is the first place where a step goes up. Did you pass the base on?
# :::
# ````

# %% tags=["exercise"]
def first_rise(d_model, base):
    ...


pe_lab.check("06-rise", first_rise)

# %% [markdown]
# ````{solution} ex-06-rise
# :class: dropdown
#
# ```python
# def first_rise(d_model, base):
#     curve = pe_lab.position_kernel(torch.arange(1001), d_model, base=base)
#     return int((curve.diff() > 0).nonzero()[0])
#
#
# pe_lab.check("06-rise", first_rise)
# ```
# ````

# %% [markdown]
# ````{exercise} The nearest stranger ★★
# :label: ex-06-twin
#
# Eight channels. Which position from 1 to 10000 has the encoding nearest to that of position 0? Put its number into
# `twin`.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# By equation {eq}`eq-distance`, the smallest distance is the largest score.
# :::
# :::{admonition} Hint 2
# :class: dropdown hint
# The candidates are the positions from 1 on. Leave 0 out: it would win.
# :::
# :::{admonition} Hint 3
# :class: dropdown hint
# `argmax` counts from 0, and your candidates from 1.
# :::
# ````

# %% tags=["exercise"]
twin = ...

pe_lab.check("06-twin", twin)

# %% [markdown]
# ````{solution} ex-06-twin
# :class: dropdown
#
# ```python
# twin = int(pe_lab.position_kernel(torch.arange(1, 10001), 8).argmax()) + 1
#
# pe_lab.check("06-twin", twin)
# ```
# ````

# %% [markdown]
# ````{exercise} A RoPE score without rotating ★★
# :label: ex-06-rope
#
# Write `rope_score(q, k, offset)`: the score that RoPE gives to a query and a key, tensors of even width $d$, whose
# positions differ by `offset` $= m - n$. Base 10000, pairs $(2i, 2i+1)$, no division. Rotate nothing: use equation {eq}`eq-rope`.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# `torch.view_as_complex(x.view(-1, 2))` reads the pairs as complex numbers.
# :::
# :::{admonition} Hint 2
# :class: dropdown hint
# The term of a pair is the real part of $q_i \bar k_i e^{\mathrm{i}\Delta\omega_i}$. The bar belongs to the key.
# :::
# :::{admonition} Hint 3
# :class: dropdown hint
# `torch.exp(1j * offset * pe_lab.inv_freq(len(q)))` makes all the factors at once.
# :::
# ````

# %% tags=["exercise"]
def rope_score(q, k, offset):
    ...


pe_lab.check("06-rope", rope_score)

# %% [markdown]
# ````{solution} ex-06-rope
# :class: dropdown
#
# ```python
# def rope_score(q, k, offset):
#     q, k = (torch.view_as_complex(x.view(-1, 2)) for x in (q, k))
#     turn = torch.exp(1j * offset * pe_lab.inv_freq(2 * len(q)))
#     return (q * k.conj() * turn).real.sum()
#
#
# pe_lab.check("06-rope", rope_score)
# ```
# ````

# %% [markdown]
# ````{exercise} A head that looks three back ★★★
# :label: ex-06-look-back
#
# Find an $8 \times 8$ matrix `aim` for which $\mathrm{PE}(m)^\top A\,\mathrm{PE}(n)$ depends on $m - n$ only and is
# largest at $m - n = 3$. There are many. Build it of blocks; do not call `pe_lab.rotation_matrix`.
#
# :::{admonition} Hint 1
# :class: dropdown hint
# {prf:ref}`thm-commute` tells the form of $A$ and the score that it gives.
# :::
# :::{admonition} Hint 2
# :class: dropdown hint
# You want $\alpha_i\cos\Delta\omega_i + \beta_i\sin\Delta\omega_i$ to be largest at $\Delta = 3$, for every $i$.
# :::
# :::{admonition} Hint 3
# :class: dropdown hint
# $\cos(\Delta - 3)\omega_i$ is. Expand it, read off $\alpha_i$ and $\beta_i$, and join the blocks with
# `torch.block_diag`.
# :::
# ````

# %% tags=["exercise"]
aim = ...

pe_lab.check("06-look-back", aim)

# %% [markdown]
# ````{solution} ex-06-look-back
# :class: dropdown
#
# ```python
# aim = torch.block_diag(
#     *(
#         torch.tensor([[angle.cos(), angle.sin()], [-angle.sin(), angle.cos()]])
#         for angle in 3 * pe_lab.inv_freq(8)
#     )
# )
#
# pe_lab.check("06-look-back", aim)
# ```
# ````

# %% [markdown]
# ## Quiz
#
# **1. Which of these changes the score of positions 3 and 5 in a table without words?**
#
# a) moving both by 100 · b) swapping them · c) doubling the width · d) storing the sines first, then the cosines
#
# :::{admonition} Answer
# :class: dropdown
# **c.** The score is $K(2)$, and more clocks add more cosines.
# a: only the difference counts. b: the kernel is even. d: a dot product does not care in which order its terms come,
# as long as both sides use the same.
# :::

# %% [markdown]
# **2. Your model has width 512 and you worry about the rebound. What helps?**
#
# a) a base of a million · b) width 1024 · c) dividing by $\sqrt{d_k}$ · d) nothing, it is fatal
#
# :::{admonition} Answer
# :class: dropdown
# **b**, if anything: more clocks in the same range postpone and shrink it.
# a brings the first rise nearer. c scales the whole curve and moves no turning point.
# d: the first rise is under a ten-thousandth of the height, and projections stand between the curve and the model.
# :::

# %% [markdown]
# **3. $W_K = W_Q = W$. When is the position part of the score certain to be relative?**
#
# a) always, as it is symmetric · b) if $W$ is orthogonal · c) if $W$ is wide · d) never
#
# :::{admonition} Answer
# :class: dropdown
# **b.** Then $A = W^\top W = I$.
# a: symmetric is not Toeplitz; the tied row of the table shows shares well above zero.
# c: a wide random $W$ comes near, and near is not certain. d: the identity is a counterexample, and so is b.
# :::

# %% [markdown]
# **4. A colleague writes: "RoPE lowers the score of far tokens." What is missing?**
#
# a) a larger base · b) that query and key point the same way · c) the softmax · d) nothing
#
# :::{admonition} Answer
# :class: dropdown
# **b.** For equal query and key the score follows the kernel, which falls slowly and ripples.
# For unrelated ones it is zero on average at all distances, so d is wrong.
# a: no base changes that. c: the softmax acts on what the scores already are.
# :::

# %% [markdown]
# ## Take-away
#
# - Between two sinusoidal encodings the score is $K(\Delta) = \sum_i\cos\Delta\omega_i$: even, highest at zero, Toeplitz.
# - The kernel falls like a logarithm and rebounds. More pairs make the rebound small; no width removes it, and raising
#   the base beyond 10000 does not postpone it.
# - A random $W_Q^\top W_K$ destroys the Toeplitz form; what commutes with the rotations keeps it. RoPE keeps it by
#   turning after the projections.
# - Nearness is a choice of $A$, not a gift of the encoding. ALiBi is the scheme that writes it down.
#
# {numref}`fig-priors` puts the shapes side by side.

# %% mystnb={"figure": {"name": "fig-priors", "caption": "Three shapes of nearness, as weight relative to the weight at distance zero: few clocks rebound, many clocks fall as a power of the distance, a straight line falls geometrically."}, "image": {"alt": "Three curves on two logarithmic axes, distances 1 to 256. The one for eight channels waves up and down near 1. The one for 512 channels falls as a nearly straight line. ALiBi's with slope one sixteenth stays high at first, then bends down steeply below the others."}}
x = torch.arange(1, 257)
shapes = {
    "d = 8": (pe_lab.position_kernel(x, 8) - 4) / 8**0.5,
    "d = 512": (pe_lab.position_kernel(x, 512) - 256) / 512**0.5,
    "ALiBi, 1/16": -x / 16,
}
plots.lines(
    x, {name: y.exp() for name, y in shapes.items()}, dashed=["ALiBi, 1/16"],
    colors={"d = 8": "other", "d = 512": "position", "ALiBi, 1/16": "content"},
    xlog=True, ylog=True,
    xlabel="distance Δ", ylabel="weight / weight at Δ = 0", ylim=(1e-5, 2),
)  # fmt: skip

# %% [markdown]
# ## Further reading
#
# - {cite:t}`vaswani2017`, section 3.5: the encoding, and the hope that it makes relative attention easy.
# - {cite:t}`yan2019`: an encoding that knows direction as well as distance, and attention without the division.
# - {cite:t}`wang2021`: translation invariance, monotonicity and symmetry as properties to test encodings by.
# - {cite:t}`ke2021`: separate projections for the position term of the score.
# - {cite:t}`su2021` and {cite:t}`barbero2025`: RoPE, and what a trained model does with its fast and slow clocks.
# - {cite:t}`press2022`: the straight line.

# %% tags=["nbval-ignore-output"] reason="versions and the machine differ between readers"
pe_lab.provenance()
