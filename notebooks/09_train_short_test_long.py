# %% [markdown]
# (ch-short-long)=
# # Train short, test long
#
# :::{div} strip
# 60 minutes to read · under 60 s of CPU · you need {ref}`ch-tables` and {ref}`ch-score`.
# :::
#
# **You will be able to**
#
# - say what a table does where it ends ({ref}`ex-09-ends`);
# - say what a perplexity hides, and get it back ({ref}`ex-09-perplexity`, {ref}`ex-09-beyond`);
# - tell unseen positions from unseen distances with a mask ({ref}`ex-09-window`);
# - compute which rotations a trained length has shown ({ref}`ex-09-base`);
# - read a report on extrapolation, and find its flaw ({ref}`ex-09-flaws`).

# %% [markdown]
# ## Thirty-two characters, and then one more
#
# Small decoders read the King James Bible, 32 characters at a time, and predict each next one.
# Text, sizes and recipe are the same; what differs is how position is put in.
# {cite:t}`vaswani2017` chose sinusoids because they "may allow" a model to read longer sequences than it was trained on (section 3.5).
# May they? Here is the sinusoidal model at the length that it knows, three seeds.

# %%
import numpy as np
import torch

import pe_lab
from pe_lab import lab, plots

torch.set_num_threads(1)
result = lab.load("panorama")

def report(variant, length, way="plain"):  # mean ± standard deviation over seeds
    at, values = result.profile(variant, f"perplexity/{way}")
    mean, spread = lab.mean_spread(values[:, at.tolist().index(length)])
    return f"{mean:5.2f} ± {spread:.2f}"

print("sinusoidal, 32 characters: perplexity", report("sinusoidal", 32))

# %% [markdown]
# Perplexity is $e^{\text{mean loss}}$.
# At 5.40 the model is as unsure as if it chose among five or six equally likely characters, of 65.
#
# Predict: what is it on texts of 64 characters, of which it knows the first 32 places?
# About the same? Ten per cent more? Twice as much?

# %%
for length in (64, 128, 256):
    print(f"sinusoidal, {length} characters: perplexity", report("sinusoidal", length))

# %% [markdown]
# ## Try it
#
# One number for 64 places does not say where the trouble is.
# Here is the loss at every place.
# Watch place 32 with the sinusoidal model and RoPE.
# Then choose ALiBi, the learned table, longer texts; and at last average over 32 places, and see how a cliff becomes a slope.
# (Its perplexities are those of the first places of 256, so they differ a little from those of shorter texts.)

# %%
pe_lab.explore.LossByPosition()

# %% [markdown]
# ## What the picture in circulation says
#
# One meets this figure in many forms, mostly without numbers on its axes: perplexity against length, and
#
# 1. learned tables collapse at once;
# 2. sinusoids get worse slowly;
# 3. RoPE stays almost flat;
# 4. ALiBi stays flat.
#
# Which of the four do you believe?
# Write it down before you go on.

# %% mystnb={"figure": {"name": "fig-long-panorama", "caption": "Perplexity against the length of the text, both axes logarithmic. Trained on 32 characters; mean of three seeds, bands from the lowest to the highest. Dashed: the same RoPE models when each token sees only the last 32."}, "image": {"alt": "Eight curves from length 32 to 256. RoPE, sinusoidal and learned climb steeply, RoPE last and highest; no encoding and T5 climb gently; ALiBi, Shaw and RoPE with a window stay level, ALiBi above the other two."}}
curves = {"sinusoidal": ("sinusoidal", "plain", "position"),
          "learned": ("learned", "plain", "highlight"),
          "RoPE": ("rope", "plain", "query"),
          "RoPE, window": ("rope", "window", "query"),
          "ALiBi": ("alibi", "plain", "key"),
          "T5 bias": ("t5", "plain", "value"),
          "Shaw": ("shaw", "plain", "other"),
          "no encoding": ("none", "plain", "content")}
found = {n: result.profile(v, f"perplexity/{w}")[1] for n, (v, w, _) in curves.items()}
lengths = result.profile("rope", "perplexity/plain")[0]
fig = plots.lines(
    lengths, {name: values.mean(0) for name, values in found.items()},
    bands={name: (values.min(0), values.max(0)) for name, values in found.items()},
    colors={name: color for name, (_, _, color) in curves.items()},
    dashed=["RoPE, window"], markers=True, xlog=True, ylog=True,
    xlabel="characters read", ylabel="perplexity", size=(6.8, 4.4),
)
fig.axes[0].set_xticks(lengths, lengths, minor=False)
fig.axes[0].set_yticks([5, 10, 20, 30], ["5", "10", "20", "30"])
fig.axes[0].minorticks_off()
fig

# %%
print("characters  ", "".join(f"{length:>16}" for length in lengths))
for name, (variant, way, _) in curves.items():
    row = (report(variant, length, way) for length in lengths)
    print(f"{name:13}", "".join(f"{text:>16}" for text in row))

# %% [markdown]
# Claims against measurements:
#
# | claim | at twice the length | at eight times | verdict |
# |---|---|---|---|
# | learned tables collapse | 5.66 → 12.07 | 20.75 | true |
# | sinusoids get worse slowly | 5.40 → 11.04 | 21.37 | false: as fast as the table |
# | RoPE is almost flat | 4.99 → 7.74 | 26.87 | false: later, and then worst of all, with each seed |
# | ALiBi is flat | 5.62 → 5.55 | 5.54 | true; {ref}`below <sec-flat>` we ask what it means |
#
# Two curves that the picture leaves out are as flat as ALiBi's, and lower: Shaw's clipped distances, and RoPE with a window.

# %% [markdown]
# ## At the edge
#
# The laboratory cuts held-out text into windows of $T$ characters that do not overlap, the same 65536 characters for every $T$.
# Place $p$ of a window has $p$ characters before it.
# If $\ell_p$ is the mean loss at place $p$, the perplexity is
#
# $$
# P_T = \exp\Bigl(\frac{1}{T}\sum_{p=0}^{T-1}\ell_p\Bigr).
# $$ (eq-perplexity)
#
# A decoder does not see what comes later, so its first 32 places are as good as ever, in any text.
# Predict the order of learned, sinusoidal, RoPE and ALiBi at place 33.

# %% mystnb={"figure": {"name": "fig-long-edge", "caption": "Loss at each place around the end of the trained ones (dotted), mean of three seeds, bands from lowest to highest. The models read the same texts, so the small ups and downs are common to all."}, "image": {"alt": "Four curves level up to place 31. Learned jumps up at once; sinusoidal climbs within five places to the same height; RoPE stays level for some places and then climbs slowly; ALiBi stays level."}}
places = np.arange(20, 64)
edge = {}
for name in ("learned", "sinusoidal", "RoPE", "ALiBi"):
    edge[name] = result.profile(curves[name][0], "loss/plain")[1][:, places]
fig = plots.lines(
    places, {name: losses.mean(0) for name, losses in edge.items()},
    bands={name: (losses.min(0), losses.max(0)) for name, losses in edge.items()},
    colors={name: curves[name][2] for name in edge},
    xlabel="place", ylabel="loss, nats",
)
fig.axes[0].axvline(31.5, color="#777777", ls=":")
fig

# %%
for name in edge:
    each = {p: edge[name].mean(0)[p - 20] for p in (31, 32, 33, 34, 36, 37, 40, 63)}
    print(f"{name:11}", "  ".join(f"{p}: {loss:.2f}" for p, loss in each.items()))
print("without any context:", round(result.final("rope", "guess")[0], 2))

# %% [markdown]
# {numref}`fig-long-edge` has a cliff, a ramp, a held edge, and a level line.
#
# - The learned table fails at the first row that it never trained: 1.69 at place 31, 3.07 at place 32.
# - Sinusoids begin to rise at once, and at place 36 they are near the table.
# - RoPE holds for six places, up to 37, and then climbs on and on.
#
# Who knows only how frequent each character is has a loss of 3.00.
# All three end above that.

# %% [markdown]
# How bad is it beyond the edge, if the good places are left out?
# Losses add up, so {eq}`eq-perplexity` can be taken apart: over places 32 to 63 only.
# First a check that the shipped losses and perplexities belong together.

# %%
_, losses = result.profile("rope", "loss/plain")
P_256 = np.exp(losses.mean(axis=1))
print("characters:", result.of("rope")[0].config["tokens"])
print("P_256 from 256 losses:", np.allclose(P_256, found["RoPE"][:, -1], rtol=1e-3))
print("perplexity      places 0–31   32–63   64–255")
for name, (variant, way, _) in curves.items():
    losses = result.profile(variant, f"loss/{way}")[1].mean(0)
    parts = (np.exp(losses[a:b].mean()) for a, b in ((0, 32), (32, 64), (64, 256)))
    print(f"{name:14}" + "".join(f"{part:11.2f}" for part in parts))

# %% [markdown]
# RoPE's mild 7.74 at 64 characters was 5.22 and 11.77.
#
# ## How tables end
#
# What happens at row 32 of a table with 32 rows?
# In PyTorch an error that does not say which table is meant; `pe_lab.Learned` names place and table.

# %%
def complaint(embed):
    try:
        embed()
    except IndexError as error:
        return f"IndexError: {error}"

print(complaint(lambda: torch.nn.Embedding(32, 64)(torch.tensor(32))))
table, x = pe_lab.Learned(32, 64), torch.zeros(1, 33, 64)
print(complaint(lambda: table.embed(x, torch.arange(33))))

# %% [markdown]
# An error is the good case.
# A table that is allocated longer than the training texts runs without one, on rows that nobody trained: their gradient is zero, exactly.
# Predict how many of 256 rows one training step on 32 characters can change.

# %%
pe_lab.seed(0)
model = pe_lab.Transformer(65, 64, 4, 3, encoding=pe_lab.Learned(256, 64, std=1.0))
ids = torch.randint(65, (8, 33), generator=torch.Generator().manual_seed(0))
logits = model(ids[:, :-1])
torch.nn.functional.cross_entropy(logits.mT, ids[:, 1:]).backward()
gradient = next(model.encoding.parameters()).grad
touched = (gradient != 0).any(dim=1)
print("rows with a gradient:", touched.sum().item(), "of", len(touched))

# %% [markdown]
# Can the trained rows be used again, without any training?
# *Clamp* gives every later place the last row, and *wrap* starts anew at row 0.
# *Resample* stretches the 32 rows over all places, with means of neighbours in between.
# One reads that resampling rescues tables, and that it is useless for them.
# We try two tables, which differ only in how large their rows were when training began.

# %%
for variant, start in (("learned", "N(0, 1)"), ("learned-small", "N(0, 0.02²)")):
    print("table that started with", start)
    for way in ("plain", "clamp", "wrap", "resample"):
        row = (report(variant, length, way) for length in lengths)
        print(f"  {way:9}", "   ".join(row))

# %% [markdown]
# All of them run without a warning.
# For the first table nothing helps much: resampled it is no better at 64 than on rows that were never trained, 12.97 against 12.07.
# For the second resampling undoes most of the damage, 6.62 instead of 10.72.
# Both opinions are right, then, about different tables.
# (At 32 the two tables are equally good; {ref}`ch-learned` looks at what training puts into such rows.)

# %% [markdown]
# ## Rows in between
#
# A formula has an advantage that a table has not: there is a row for place $15\tfrac12$.
# Give the model $p \cdot 32/T$ in place of $p$, and no position is beyond the trained ones.
# {cite:t}`chen2023` did this for RoPE, and fine-tuned; here it is done to sinusoids, and nothing is trained.
# Predict: better than the plain model, or worse?

# %%
for way in ("plain", "interpolate"):
    print(f"{way:12}", "   ".join(report("sinusoidal", n, way) for n in lengths))

# %% [markdown]
# At twice the length, 6.57 instead of 11.04: most of the damage is undone by one multiplication.
# At four times the length about half of it is.
# So to rescale sinusoids is no dead end; {ref}`ch-stretch` goes on from here.
#
# What must matter is whether a half-way row is near its neighbours.
# It is, for a smooth curve; and for two rows without anything in common?

# %%
def nearness(row, *neighbours):
    return [f"{torch.cosine_similarity(row, n, dim=0).item():.2f}" for n in neighbours]

def sinusoid(p):
    return pe_lab.sinusoidal(torch.tensor([p]), 64, dtype=torch.float64)[0]

print("sinusoids:     ", nearness(sinusoid(15.5), sinusoid(15), sinusoid(16)))
released = lab.minilm.position_table()[[100, 101]]
print("MiniLM's table:", nearness(released.mean(0), *released))
rows = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).double()
print("random rows:   ", nearness(rows.mean(0), *rows))

# %% [markdown]
# ## Why RoPE holds a little, and then fails
#
# "RoPE sees only distances, so it does not matter which positions were trained."
# The first half is a theorem; the second does not follow.
# A distance of 40 is as new to a model that was trained on 32 as position 40 is.
#
# Pair $i$ of a head turns by $\omega_i$ per place and once around in $2\pi/\omega_i$ places.
# Predict how many of the eight pairs have turned once within 32 places.

# %%
def wavelengths(base, head_dim=16):
    return 2 * torch.pi / pe_lab.inv_freq(head_dim, base=base)

for base in (10_000.0, 5.0):
    turns = wavelengths(base)
    print(f"base {base:7.0f}:", "  ".join(f"{w:.1f}" for w in turns.tolist()))
    print(f"turned within 32 places: {(turns <= 32).sum().item()} of {len(turns)}")
sines = wavelengths(10_000.0, 64) > 32
print("sinusoids, 64 channels: not turned", sines.sum().item(), "of", len(sines))

# %% mystnb={"figure": {"name": "fig-long-angles", "caption": "Part of the circle that each pair of a head shows within 32 places. At base 10000 six pairs of eight have shown half of their angles, or less; at base 5 every pair has shown all."}, "image": {"alt": "Two panels of eight bars. At base 10000 two bars reach a full turn and six fall off steeply towards zero; at base 5 all eight reach a full turn."}}
with plots.figure(2, size=(6.8, 2.8), sharey=True) as (fig, axes):
    for ax, base in zip(axes, (10_000.0, 5.0), strict=True):
        share = (31 / wavelengths(base)).clamp(max=1)
        ax.bar(range(8), share, color=plots.color("query"))
        ax.set(title=f"base {base:.0f}", xlabel="pair")
    axes[0].set_ylabel("part of the circle")
fig

# %% [markdown]
# "Beyond the edge all angles are new" would be wrong, too, for RoPE and for sinusoids: in {numref}`fig-long-angles` fast pairs have shown everything.
# But the slow ones have not.
#
# This suggests an experiment.
# With base 5 no angle is ever new, at any distance.
# If new angles are the whole trouble, RoPE with base 5 must be flat.
# What do you expect?

# %%
print("base 10000:", "   ".join(report("rope", n) for n in lengths))
print("base 5:    ", "   ".join(report("rope-base5", n) for n in lengths))

# %% [markdown]
# Most of the damage is gone: 7.92 instead of 26.87 at 256, and at the trained length the small base costs nothing.
# So new angles are the main culprit.
#
# They are not the only one, for 7.92 is not flat.
# At base 5 the hands come round and round, and a key far back may look like a near one.
# The longer the text, the more such keys compete.

# %% [markdown]
# ## A mask that separates two suspects
#
# A place beyond the edge has a new *position*, and it looks back over new *distances* and more keys.
# A window mask takes the second away: each token sees itself and the 31 before it.
#
# ````{prf:proposition} A window makes all places alike
# :label: prop-window
#
# In a decoder of $N$ layers let each token see itself and the $w - 1$ before it, and let position enter only through terms that depend on $m - n$.
# Then there is one function $f$ such that the output at every place $p \ge N(w-1)$ is $f$ of the last $N(w-1) + 1$ tokens.
# ````
#
# ````{prf:proof}
# By induction over layers. Layer 0, the token itself, is the same function of 1 token at every place.
# Let layer $j$ be the same function of the last $j(w-1) + 1$ tokens at every $p \ge j(w-1)$.
# Layer $j + 1$ at $p \ge (j+1)(w-1)$ mixes the outputs at $p - w + 1, \dots, p$, all of them at places where that holds,
# with terms made from these outputs and the offsets $0, \dots, w - 1$, which are the same at every $p$.
# ````
#
# For our models, $N = 3$ and $w = 32$: from place 93 on all places are alike.

# %% [markdown]
# We check it on models with random weights and a window of 8: two texts begin differently, have different lengths, and end in the same 22 characters.
# Are the outputs at the end the same?
# Predict the eight answers.

# %%
from pe_lab.lab.extrapolation import nearest

rng = torch.Generator().manual_seed(0)
end = torch.randint(65, (3 * (8 - 1) + 1,), generator=rng)
texts = [torch.cat((torch.randint(65, (n,), generator=rng), end)) for n in (10, 50)]

def same_end(encoding, window):
    pe_lab.seed(0)
    model = pe_lab.Transformer(65, 32, 4, 3, encoding=encoding).double().eval()
    one, two = (model(t[None], mask=nearest(len(t), window))[0, -1] for t in texts)
    return bool((one - two).abs().max() < 1e-12)

for encoding in (pe_lab.RoPE(8), pe_lab.ALiBi(4), pe_lab.NoPE(), pe_lab.Sinusoidal(32)):
    print(f"{type(encoding).__name__:10}", {w: same_end(encoding, w) for w in (8, 99)})

# %% [markdown]
# Without the window nobody is the same, and with it all are but sinusoids.
#
# Now the trained models.
# Predict, with {prf:ref}`prop-window` in mind, which of them the mask saves.

# %% mystnb={"figure": {"name": "fig-long-window", "caption": "Perplexity at 256 characters with all tokens visible (grey), and with a window of 32 (green); mean of three seeds, lines from lowest to highest."}, "image": {"alt": "Pairs of points for eight encodings on a logarithmic axis. The window brings RoPE from the far right to the left end; base 5 and T5 move left, too; ALiBi and Shaw are at the left with and without it; sinusoidal, learned and no encoding stay at the right."}}
order = {"sinusoidal": "sinusoidal", "learned": "learned", "none": "no encoding",
         "rope": "RoPE", "rope-base5": "RoPE, base 5", "t5": "T5 bias",
         "alibi": "ALiBi", "shaw": "Shaw"}
with plots.figure(size=(6.8, 3.6), xlabel="perplexity at 256 characters") as (fig, ax):
    for way, role, shift in (("plain", "content", -0.12), ("window", "position", 0.12)):
        for row, variant in enumerate(order):
            values = result.profile(variant, f"perplexity/{way}")[1][:, -1]
            at, paint = [row + shift] * 2, plots.color(role)
            ax.plot([values.min(), values.max()], at, color=paint, lw=2)
            ax.plot(values.mean(), row + shift, "o", color=paint)
    ax.set(xscale="log", yticks=range(8), yticklabels=order.values())
    ax.set_xticks([5, 10, 20, 30], ["5", "10", "20", "30"])
    ax.minorticks_off()
    ax.invert_yaxis()
fig

# %%
print(f"{'at 256':13}{'all visible':>16}{'window':>16}")
for variant, name in order.items():
    print(f"{name:13}{report(variant, 256):>16}{report(variant, 256, 'window'):>16}")

# %% [markdown]
# In {numref}`fig-long-window` the mask sorts them.
#
# - It saves RoPE, 4.77 instead of 26.87, and base 5, and T5: distances and too many keys were all that was wrong.
# - It does not save sinusoids and tables: there the *positions* are what is new.
#   {cite:t}`press2022code` says in the FAQ of his code that he tried this, and that it does not work.
# - It changes next to nothing where nothing was wrong.

# %% [markdown]
# One row is strange.
# Without an encoding nothing depends on $p$, so {prf:ref}`prop-window` applies, and the places from 93 on are alike.
# But they are alike at 10.69, no better than with all tokens visible.
# The proposition promises sameness, and not that it is good.
# A likely reason: such a model knows its place by counting the tokens that it sees ({ref}`ch-break`), and with the window every later place counts 32.

# %% [markdown]
# ## Where they look
#
# Does a model in trouble look at the wrong places?
# The laboratory measured how much weight the last eight queries of a text put on the eight nearest tokens, themselves included:
# a mean over heads and layers.
# If all visible tokens counted alike, it would be about $8/T$.
# In text, what is near matters most. Predict: above or below $8/T$, once the text is too long?

# %% mystnb={"figure": {"name": "fig-long-recent", "caption": "Weight that the last eight queries put on the eight nearest tokens, mean of three seeds, bands from lowest to highest. Dotted: what it would be if all visible tokens counted alike."}, "image": {"alt": "Lines falling with length on logarithmic axes. Sinusoidal and learned fall below the dotted line of even weights at once; RoPE falls to it; Shaw and ALiBi fall little and stay far above."}}
shown = ["Shaw", "ALiBi", "RoPE", "learned", "sinusoidal"]
recent = {name: result.profile(curves[name][0], "recent")[1] for name in shown}
even = [np.mean([8 / seen for seen in range(n - 7, n + 1)]) for n in lengths]
fig = plots.lines(
    lengths, {name: share.mean(0) for name, share in recent.items()},
    bands={name: (share.min(0), share.max(0)) for name, share in recent.items()},
    colors={name: curves[name][2] for name in shown}, markers=True, xlog=True,
    ylog=True, xlabel="characters read", ylabel="weight on the nearest eight",
)
fig.axes[0].plot(lengths, even, ":", color="#333333")
fig.axes[0].set_xticks(lengths, lengths, minor=False)
fig.axes[0].set_yticks([0.01, 0.1, 1], ["1 %", "10 %", "100 %"])
fig.axes[0].minorticks_off()
fig

# %%
print("even weights, at 256:", f"{even[-1]:.1%} on the nearest eight")
for name in shown:
    share, back, spread = (result.profile(curves[name][0], m)[1][:, -1].mean()
                           for m in ("recent", "distance", "entropy"))
    print(f"{name:11}{share:6.1%} on the nearest eight, {back:4.0f} tokens back, "
          f"{spread:.1f} nats: as if {np.exp(spread):.0f} tokens")

# %% [markdown]
# Inside the trained length all five look at what is near ({numref}`fig-long-recent`).
# Beyond it, sinusoids and tables put *less* on the near tokens than even weights would: they look away.
# At 256, RoPE puts no more on them than even weights, looks 144 tokens back on average, and is sure of itself: its entropy is that of 7 tokens.
# It stares at a few far characters.

# %% [markdown]
# (sec-flat)=
# ## What "flat" means
#
# ALiBi subtracts a slope times the distance from each score, with another slope for each head.
# One reads that it extrapolates since it has seen the distances that it needs.
# But a distance of 64 is as new here as it is for RoPE.
# What makes far keys harmless is the penalty.
# If all contents scored alike, how many tokens would hold 99 % of a head's weight?

# %%
for slope in pe_lab.alibi_slopes(4):
    print(f"slope {slope:.4f}: {np.log(100) / slope.item():6.0f} tokens hold 99 %")

# %% [markdown]
# One head of the four has a window of its own, soft and inside 32; the two flattest could look far back.
#
# So is ALiBi's level line a sign that it *uses* 256 characters?
# Take all but 32 away from it and see what is lost.
# {cite:t}`press2022` asked this in another way, in their appendix B.
# Their models, they write, "might not be using contexts longer than the ones" they were trained on.

# %%
def late(variant, way):  # perplexity of places 64 to 255, seed by seed
    return np.exp(result.profile(variant, f"loss/{way}")[1][:, 64:].mean(axis=1))

for variant in ("alibi", "shaw"):
    mean, spread = lab.mean_spread(late(variant, "plain") - late(variant, "window"))
    print(f"{order[variant]:6} all visible {late(variant, 'plain').mean():.2f}, window "
          f"{late(variant, 'window').mean():.2f}: more by {mean:.2f} ± {spread:.2f}")

# %% [markdown]
# Nothing is lost; with less to see they are even a little better.
# *Does not get worse* is worth having.
# *Uses longer context* is another claim, with another measurement: cut the context, and see what it costs.
#
# And flat at which level?
# At 32 characters ALiBi has 5.62, where RoPE has 4.99, and it never makes that up.
# Level, too, and lower, are Shaw's clipped distances and RoPE with its window, both at 4.77.

# %% [markdown]
# ## The same at another size
#
# Our models are tiny.
# {cite:t}`press2022` trained models of 16 layers on Wikipedia articles, with 1024 tokens, and measured them at 2024.
# Tokens and characters have different perplexities, so we compare by which *factor* they grow.

# %%
published = {"sinusoidal": (19.34, 51.09), "rope": (19.33, 31.17),  # their Table 3
             "t5": (18.80, 18.34), "alibi": (18.66, 18.05)}
for variant, (short, long) in published.items():
    values = result.profile(variant, "perplexity/plain")[1]
    ours = lab.mean_spread(values[:, 1] / values[:, 0])
    print(f"{order[variant]:11} theirs × {long / short:.2f}   "
          f"ours × {ours[0]:.2f} ± {ours[1]:.2f}")

# %% [markdown]
# The order is the same, and but for sinusoids, which fail harder there, so is the size.
# (They compare no learned table: it has no row 1024.)
# In their runs sinusoids gain from up to 50 tokens more than 1024, and RoPE from up to 100.
#
# Ours at a larger size has not been run: no GPU was available.
# The recipe is there, 256 channels, six layers, trained on 128 tokens and measured on up to sixteen times as many:
#
# ```sh
# pe-lab run panorama --size gpu
# ```

# %% [markdown]
# ## Copying, and a ranking that travels
#
# Language forgives: most of what a character needs is near.
# Strings do not.
# {cite:t}`kazemnejad2023` trained decoders on ten tasks, such as copying and addition, and tested them on up to twice the length.
# Their ranking: no encoding and T5's bias ahead, ALiBi in the middle, RoPE and sinusoids behind.
# (One meets it retold with T5 left out, and with learned tables, which they did not test, put in.)

# %% [markdown]
# The laboratory copies strings of digits, 1 to 8 in training, up to 16 in the test, three seeds.
# A copy counts if every digit is right.
# Predict the ranking on copies of 10 digits.

# %% mystnb={"figure": {"name": "fig-long-copy", "caption": "Copies that are right in every digit, against the number of digits; trained on 1 to 8 (dotted). Mean of three seeds, bands from lowest to highest."}, "image": {"alt": "Six lines near one up to 8 digits. At 10 digits ALiBi and no encoding are above one half, T5 is near zero, and RoPE, sinusoidal and learned are at zero; at 12 all are low."}}
strings = lab.load("lengths")
schemes = {"nope": "no encoding", "alibi": "ALiBi", "t5": "T5 bias", "rope": "RoPE",
           "sinusoidal": "sinusoidal", "learned": "learned"}
right = {name: strings.profile(f"copy/{scheme}", "exact_match")[1][:, :4]
         for scheme, name in schemes.items()}
fig = plots.lines(
    strings.profile("copy/nope", "exact_match")[0][:4],
    {name: share.mean(0) for name, share in right.items()},
    bands={name: (share.min(0), share.max(0)) for name, share in right.items()},
    colors={name: curves[name][2] for name in right},
    markers=True, xlabel="digits", ylabel="right copies",
)
fig.axes[0].axvline(8, color="#777777", ls=":")
fig

# %%
def score(variant, digits, metric="exact_match"):
    at, values = strings.profile(variant, metric)
    mean, spread = lab.mean_spread(values[:, at.tolist().index(digits)])
    return f"{mean:.2f} ± {spread:.2f}"

print("updates:", strings.of("copy/nope")[0].config["recipe"]["steps"])
print("right copies      8            10            12            16"
      "         single digits at 10")
for scheme, name in schemes.items():
    copied = f"copy/{scheme}"
    row = "  ".join(score(copied, n) for n in (8, 10, 12, 16))
    print(f"{name:12}", row, "    ", score(copied, 10, "token_accuracy"))

# %% [markdown]
# What reproduces, in {numref}`fig-long-copy`: no encoding, ALiBi and T5 carry something over.
# RoPE, sinusoids and the table copy nothing beyond 8 digits; of their single digits about a third is right, or less.
#
# What does not: ALiBi is ahead of no encoding, 0.78 against 0.60, and T5 far behind and uneven.
# Nobody copies 16 digits.
# Models this small, after 600 updates, settle no order of three neighbours.
#
# Does the ranking hold when strings are reversed, or sorted?

# %%
print("reversed          10            12     sorted 10            12            16")
for scheme, name in schemes.items():
    backwards = "  ".join(score(f"reverse/{scheme}", n) for n in (10, 12))
    ordered = "  ".join(score(f"sort/{scheme}", n) for n in (10, 12, 16))
    print(f"{name:12} {backwards}     {ordered}")
print("sums of 8 digits:", {score(f"addition/{scheme}", 8) for scheme in schemes})

# %% [markdown]
# Reversed, no encoding and ALiBi are level. Sorted, no encoding is far ahead, and ALiBi second; {ref}`ch-nope` says why sorting is special.
# T5 stays uneven, with spreads as large as its means.
# Sums none of them has learned, so they rank nobody.

# %% [markdown]
# Set it beside {numref}`fig-long-panorama`: the model without an encoding was the worst of all on text at 32.
# Here it is second best at one task and best at another.
# "Extrapolates well" has no meaning without a task.
#
# ## See it live
#
# Two of the models in small, one seed each, trained in this notebook on another text.
# Only verdicts are printed: the digits depend on the processor, and on the version of Python, whose help texts are read.
# Predict both.

# %%
quick = lab.run("panorama", size="quick", variants=["sinusoidal", "alibi"])
growth = {}
for variant in quick.variants:
    values = quick.profile(variant, "perplexity/plain")[1][0]
    growth[variant] = values[-1] / values[0]  # from 32 to 128 characters
print("sinusoidal grows by more than half:", bool(growth["sinusoidal"] > 1.5))
print("ALiBi stays within a tenth:        ", bool(abs(growth["alibi"] - 1) < 0.1))

# %% [markdown]
# ## Common mistakes
#
# **Longer windows have fewer beginnings.**
# The first tokens of a window have little before them, and are hard.
# In a long window they are a smaller part, so the perplexity falls though no token is predicted better; {cite:t}`press2022` call it the early token curse.
# RoPE with a window of 32 falls from 4.99 to 4.77. Is it all of this kind?
# We take the losses of the first 32 places, and for all later ones a single mean.

# %%
losses = result.profile("rope", "loss/window")[1].mean(0)
early, rest = losses[:32].sum(), losses[32:].mean()
for length in lengths[1:]:
    predicted = np.exp((early + (length - 32) * rest) / length)
    measured = report("rope", length, "window")
    print(f"{length:4} predicted {predicted:.2f}   measured {measured}")

# %% [markdown]
# It is: numbers that know nothing of the length predict the curve, within 0.1.
#
# **Two ways to cut a text.**
# Windows side by side are one way; a window that slides by one, so that each token has 32 before it, is another.
# The same RoPE models, both ways:

# %%
sliding = np.exp(result.final("rope", "last_token_loss"))
print("windows side by side:        ", report("rope", 32))
print(f"sliding, other text:          {sliding.mean():.2f} ± {sliding.std(ddof=1):.2f}")
print(f"window mask, places 64 to 255: {late('rope', 'window').mean():.2f}")

# %% [markdown]
# 4.99, 4.39, 4.72, and nothing was trained in between.
# From 4.99 to 4.72 is cutting alone; below that it is other text, too: the sliding sample comes from all that was held out, the windows from its beginning.
# Compare only what was cut the same way, from the same text.
#
# **One seed.**
# At 256 characters, which is worse, the learned table or sinusoids?
# Each seed has an answer of its own:

# %%
for seed in range(3):
    pair = {v: result.profile(v, "perplexity/plain")[1][seed, -1]
            for v in ("learned", "sinusoidal")}
    print(f"seed {seed}:", "  ".join(f"{v} {p:.1f}" for v, p in pair.items()),
          "→ worse:", max(pair, key=pair.get))

# %% [markdown]
# **Losses on different scales.**
# Perplexities per character, per subword and per word are three quantities: 4.99 per character is 15438 per word of five letters and its space.
# Divide the loss of a text by its characters or bytes before you compare models with different tokens.
#
# **Text that was trained on.**
# It is known, or at least of the same kind: the last training batches look better than the books that were held out.

# %%
per_character = found["RoPE"][:, 0].mean().round(2)
print(f"{per_character} per character, {per_character**6:.0f} per six characters")
for metric in ("train_loss", "held_out_loss"):
    final = np.exp(result.curve("rope", metric)[1][:, -1])
    print(f"RoPE, {metric:13} perplexity {final.mean():.2f} ± {final.std(ddof=1):.2f}")

# %% [markdown]
# ## Compare with real code
#
# A released model's table ends where its config says: `pe_lab.hf` reads such a config and builds the encoding that it means, here GPT-2's.
# Mistral 7B has a window of 4096 in each of 32 layers; {cite:t}`jiang2023` name a reach of about 131 000 tokens, which is $N(w-1)+1$ of {prf:ref}`prop-window`.
# And a window needs no special attention: it is a mask, which PyTorch's own function takes.

# %%
config = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_positions": 1024}
gpt2 = pe_lab.hf.from_config(config).encoding
print(gpt2, complaint(lambda: gpt2.embed(torch.zeros(1, 1, 768), torch.tensor([1024]))))
print("reach:", 32 * (4096 - 1) + 1)
rng = torch.Generator().manual_seed(0)
q, k, v = torch.randn(3, 1, 4, 40, 16, generator=rng).double()
ours = pe_lab.attention(q, k, v, mask=nearest(40, 8), causal=True)
theirs = torch.nn.functional.scaled_dot_product_attention(
    q, k, v, attn_mask=nearest(40, 8)[:, None])
print("same as PyTorch's:", torch.allclose(ours, theirs))

# %% [markdown]
# ## Exercises
#
# Each stub runs as it is.
# Replace the dots, run the cell, and `check` names the kind of mistake if there is one.

# %% [markdown]
# `````{exercise} Where a table ends ★
# :label: ex-09-ends
#
# Write `ends(positions, rows)` for a table of `rows` rows: the ids when later places are clamped, and when they are wrapped,
# stacked as two rows of one tensor, in that order.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# The last row of a table has the number `rows - 1`.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Clamping is a minimum; wrapping is a remainder.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `positions.clamp(max=...)`, `positions % ...`, and `torch.stack`.
# ````
# `````

# %% tags=["exercise"]
def ends(positions, rows):
    """Clamped and wrapped ids, stacked."""
    ...


pe_lab.check("09-ends", ends)
# %% [markdown]
# ````{solution} ex-09-ends
# :class: dropdown
#
# ```python
# def ends(positions, rows):
#     """Clamped and wrapped ids, stacked."""
#     return torch.stack((positions.clamp(max=rows - 1), positions % rows))
#
#
# pe_lab.check("09-ends", ends)
# ```
# ````

# %% [markdown]
# `````{exercise} From losses to a perplexity ★
# :label: ex-09-perplexity
#
# Write `perplexity(losses, length)`: the perplexity of the first `length` places, from the loss at every place, in nats.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Equation {eq}`eq-perplexity`, with $T$ the length.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# First the mean, then the exponential.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `losses[:length]` are the first `length` places.
# ````
# `````

# %% tags=["exercise"]
def perplexity(losses, length):
    """exp of the mean of the first losses."""
    ...


pe_lab.check("09-perplexity", perplexity)
# %% [markdown]
# ````{solution} ex-09-perplexity
# :class: dropdown
#
# ```python
# def perplexity(losses, length):
#     """exp of the mean of the first losses."""
#     return losses[:length].mean().exp()
#
#
# pe_lab.check("09-perplexity", perplexity)
# ```
# ````

# %% [markdown]
# `````{exercise} What the mean hides ★★
# :label: ex-09-beyond
#
# A paper prints two perplexities: `short` at the trained length and `long` at a greater one.
# Write `untrained(short, long, trained, length)`: the perplexity of the places from `trained` to `length - 1` alone.
# Take the first places of the long texts to be as good as the short ones.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# What adds up over places? Not the perplexities.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The sum of losses over all places is `length` times the logarithm of `long`.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Subtract the trained places' sum, divide by the number of the others, raise e to it.
# ````
# `````

# %% tags=["exercise"]
def untrained(short, long, trained, length):
    """Perplexity of places trained … length − 1."""
    ...


pe_lab.check("09-beyond", untrained)
# %% [markdown]
# ````{solution} ex-09-beyond
# :class: dropdown
#
# ```python
# def untrained(short, long, trained, length):
#     """Perplexity of places trained … length − 1."""
#     total = length * np.log(long) - trained * np.log(short)
#     return np.exp(total / (length - trained))
#
#
# pe_lab.check("09-beyond", untrained)
# ```
# ````

# %% [markdown]
# `````{exercise} Only the last few ★★
# :label: ex-09-window
#
# Write `window_mask(length, window)`: a boolean tensor (length, length), rows are queries,
# true where the query sees the key: its own token and the `window - 1` before it.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Subtract the numbers of the keys from those of the queries: how far back is each key?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Two conditions: not ahead, and not too far back.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `torch.arange(length)[:, None] - torch.arange(length)` is at least 0 and less than `window`.
# ````
# `````

# %% tags=["exercise"]
def window_mask(length, window):
    """True where 0 ≤ m − n < window."""
    ...


pe_lab.check("09-window", window_mask)
# %% [markdown]
# ````{solution} ex-09-window
# :class: dropdown
#
# ```python
# def window_mask(length, window):
#     """True where 0 ≤ m − n < window."""
#     back = torch.arange(length)[:, None] - torch.arange(length)
#     return (back >= 0) & (back < window)
#
#
# pe_lab.check("09-window", window_mask)
# ```
# ````

# %% [markdown]
# `````{exercise} Every hand turns once ★★
# :label: ex-09-base
#
# Write `largest_base(head_dim, trained)`: the largest base at which every pair of RoPE turns at least once within `trained` places,
# $2\pi/\omega_i \le T$ for all $i$.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Only the slowest pair matters. What is its $\omega$?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The last of $d/2$ pairs has $i = d/2 - 1$, so $\omega = b^{-(d-2)/d}$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# $2\pi\,b^{(d-2)/d} = T$. Solve for $b$.
# ````
# `````

# %% tags=["exercise"]
def largest_base(head_dim, trained):
    """b with 2π·b^((d−2)/d) = T."""
    ...


pe_lab.check("09-base", largest_base)
# %% [markdown]
# ````{solution} ex-09-base
# :class: dropdown
#
# ```python
# def largest_base(head_dim, trained):
#     """b with 2π·b^((d−2)/d) = T."""
#     return (trained / (2 * np.pi)) ** (head_dim / (head_dim - 2))
#
#
# pe_lab.check("09-base", largest_base)
# ```
# ````

# %% [markdown]
# `````{exercise} Four reports, four flaws ★★★
# :label: ex-09-flaws
#
# Each report has one flaw. Set `flaws` to a list of four of these words, in the order of the reports: `"early"`, `"seed"`, `"scale"`, `"seen"`.
#
# 1. "Cut into pieces of 64, our text has perplexity 5.6; into pieces of 256, 5.4. So the model uses 256 tokens."
# 2. "Same text, same tokens: scheme A reaches 20.8 at length 256 and B 21.4. A extrapolates better."
# 3. "Our model on subwords has perplexity 12, theirs on characters 5. Theirs is better."
# 4. "On chapters from the training corpus the loss stays level up to length 4096."
#
# ````{admonition} Hint 1
# :class: dropdown hint
# For each report, name the cheapest other explanation of its numbers.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# One is about how text is cut, one about chance, one about units, one about memory.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# All four are among the common mistakes above.
# ````
# `````

# %% tags=["exercise"]
flaws = ...

pe_lab.check("09-flaws", flaws)
# %% [markdown]
# ````{solution} ex-09-flaws
# :class: dropdown
#
# ```python
# flaws = ["early", "seed", "scale", "seen"]
#
# pe_lab.check("09-flaws", flaws)
# ```
# ````

# %% [markdown]
# ## Quiz
#
# 1. A model was trained on 32 tokens. Its perplexity is 4.99 at 32 and 7.74 at 64. Where is the harm?
#    (a) everywhere, a little; (b) in the second half, at about 12; (c) one cannot know.
#
# ````{admonition} Answer 1
# :class: dropdown
# **b.** A decoder's first 32 places do not see the rest, so the others have to make up the difference. Not a: the first are as good as ever.
# Not c: the mean loss can be taken apart.
# ````
#
# 2. With a window of the trained length RoPE is level at any length, and sinusoids are not. Why?
#    (a) RoPE has no new offsets in the window, but sinusoids have new positions; (b) sinusoids overflow; (c) the window is too short for sinusoids.
#
# ````{admonition} Answer 2
# :class: dropdown
# **a.** This is {prf:ref}`prop-window` and its condition. Not b: sines stay within 1 at any position. Not c: both models see the same tokens.
# ````
#
# 3. ALiBi's perplexity is level up to 256. What follows? (a) it uses 256 tokens; (b) it is the best choice; (c) it is not harmed by more than 32.
#
# ````{admonition} Answer 3
# :class: dropdown
# **c.** Not a: with a window of 32 it does as well. Not b: at the trained length others are better, and some of them are level, too.
# ````
#
# 4. "RoPE depends on distances only, so longer texts cost nothing." (a) true; (b) false: distances beyond the trained ones are new;
#    (c) false: RoPE depends on positions.
#
# ````{admonition} Answer 4
# :class: dropdown
# **b.** Six of eight pairs show angles that they never showed. Not c: its scores depend on $m - n$ alone, and that is no help here.
# ````

# %% [markdown]
# ## Take-away
#
# - Look at the loss by place. Beyond the edge a table meets a cliff, sinusoids go up a ramp within five places, RoPE holds for six, and then climbs highest.
# - Three things are new in a long text: positions, distances, and how many keys compete. A window mask takes the last two away, and so tells them apart.
# - Level is not the same as using the context, and a level line may start high. Ask what is lost when the context is cut.
# - One number, one seed, one way to cut a text: each of them can turn a ranking round.
#
# {numref}`fig-long-shapes` shows the four shapes.

# %% mystnb={"figure": {"name": "fig-long-shapes", "caption": "Four shapes of the loss by place, running means over eight places, mean of three seeds; trained up to the dotted line. Positions on a logarithmic axis."}, "image": {"alt": "Four small panels. Learned: a step up at the edge. Sinusoidal: a steep ramp. RoPE: level a little beyond the edge, then climbing highest. ALiBi: level."}}
with plots.figure(4, size=(6.8, 2.4), sharey=True) as (fig, axes):
    shapes = ("cliff", "ramp", "held", "level")
    for ax, shape, name in zip(axes, shapes, edge, strict=True):
        losses = result.profile(curves[name][0], "loss/plain")[1].mean(0)
        smooth = np.convolve(losses, np.full(8, 1 / 8), mode="valid")
        at, paint = np.arange(4, 4 + len(smooth)), plots.color(curves[name][2])
        ax.plot(at, smooth, color=paint)
        ax.axvline(31.5, color="#777777", ls=":")
        ax.set(title=shape, xlabel=name, xscale="log")
        ax.set_xticks([8, 32, 256], ["8", "32", "256"])
        ax.minorticks_off()
    axes[0].set_ylabel("loss, nats")
fig

# %% [markdown]
# ## Further reading
#
# - {cite:t}`press2022`: the experiment at a larger size, with the sliding window in appendix B that says what level means.
# - {cite:t}`kazemnejad2023`: length generalisation on ten tasks; and why a decoder without an encoding can count.
# - {cite:t}`chi2023dissecting`: ALiBi as a soft window, and which training length covers what a model looks at.
# - {cite:t}`chen2023`: positions divided instead of exceeded, with fine-tuning.
# - {cite:t}`beltagy2020`: windows of attention, and how layers widen what they see.

# %% tags=["nbval-ignore-output"] reason="versions and processors differ from machine to machine"
pe_lab.provenance()
