# %% [markdown]
# (ch-stretch)=
# # Stretch the context
#
# :::{div} strip
# 60 minutes to read · under 40 s of CPU · you need {ref}`ch-rotate` and {ref}`ch-score`.
# :::
#
# **You will be able to**
#
# - say which pairs of a model have not seen all their angles ({ref}`ex-15-unseen`);
# - compute the base that stretches a context by a factor ({ref}`ex-15-base`), and slow pairs down by parts ({ref}`ex-15-parts`);
# - say why stored keys and dynamic scaling do not go together ({ref}`ex-15-drift`);
# - read from a config what happens at a given length ({ref}`ex-15-config`);
# - find two bugs in an implementation of YaRN ({ref}`ex-15-repair`).

# %% [markdown]
# ## Thirty-two characters
#
# A small decoder has learned to continue the King James Bible, character by character.
# It has never seen a window of more than 32 characters.
# Its queries and keys are turned by their positions, which is RoPE {cite:p}`su2021`: scores then depend on distances.
# Nothing in the formula ends at 32. Predict its perplexity in windows twice, four and eight times as long.

# %%
import torch
import pe_lab
from itertools import product
from math import log, pi
from pe_lab import lab, plots, scaling

torch.set_num_threads(1)
result = lab.load("stretch")

def perplexity(way, steps=0, length=128, scheme="rope"):  # one value for each seed
    lengths, values = result.profile(scheme, f"perplexity/{way}/{steps}")
    return values[:, lengths.tolist().index(length)]

def told(values):
    return "{:5.2f} ± {:.2f}".format(*lab.mean_spread(values))

for length in (32, 64, 128, 256):
    print(f"windows of {length:3}:", told(perplexity("plain", length=length)))

# %% [markdown]
# At four times the trained length, 15.63 instead of 4.99, and it gets worse from there.
# "RoPE extrapolates to any length at no cost", one can read.
# The formula does; the model does not.
#
# Now leave every weight as it is, and change only the eight frequencies at which the pairs of a head turn.
# Here are three other sets of eight numbers, none of which the model was trained with.

# %%
for way in ("plain", "linear", "ntk", "yarn"):
    print(f"{way:7} windows of 128:", told(perplexity(way)))

# %% [markdown]
# One set of eight numbers halves the perplexity, and another doubles it.
# What does a good set do that a bad one does not?
#
# ## Try it
#
# Each dot is a pair of channels; its height says how much slower it turns than in training.
# Press "our small model", and go through the rules: watch the fastest pair at the left, and count the rings, pairs that meet new angles.
# Which rule slows the fastest pair? Which leave no ring?

# %%
pe_lab.explore.ContextStretch()

# %% [markdown]
# ## What a pair has seen
#
# Pair $i$ turns at $\omega_i = b^{-2i/d}$ radians per position, so at distance $\Delta$ its angle is $\Delta\,\omega_i$.
# Within a trained length $L_0$ it makes $r_i = L_0\,\omega_i/2\pi$ turns.
# If $r_i \ge 1$, training showed it the whole circle.
# If not, it showed an arc, and longer texts go on where the arc ends.

# %%
def turns(inv_freq, length):
    return inv_freq * length / (2 * pi)

models = {"our model": (16, 1e4, 32), "Llama 2": (128, 1e4, 4096)}
for name, (head_dim, base, trained) in models.items():
    full = int((turns(pe_lab.inv_freq(head_dim, base=base), trained) >= 1).sum())
    print(f"{name:9} trained at {trained:4}: {full} pairs turn fully,"
          f" {head_dim // 2 - full} do not")
print([round(r, 3) for r in turns(pe_lab.inv_freq(16), 32).tolist()])

# %% mystnb={"figure": {"name": "fig-stretch-waves", "caption": "Wavelength of each pair, in positions, for Llama 2's heads (base 10000, 128 channels). Pairs above the lower line have not turned once in training; within 65536 tokens, 16 times as many, most of them do."}, "image": {"alt": "A straight rising line on a logarithmic axis from six positions to fifty thousand, crossed by two horizontal lines, at four thousand and at sixty-five thousand."}}
waves = 2 * pi / pe_lab.inv_freq(128)
fig = plots.lines(range(64), {"wavelength": waves}, ylog=True, xlabel="pair",
                  ylabel="positions for one turn")
for length in (4096, 65536):
    fig.axes[0].axhline(length, color=plots.color("highlight"), lw=1.5, ls="--")
    fig.axes[0].text(0, 1.15 * length, f"{length} tokens")
fig

# %% [markdown]
# "At 100 thousand tokens, a model trained at 4096 meets angles it has never seen":
# right for 18 pairs of 64, those above the lower line of {numref}`fig-stretch-waves`.
# The other 46 have been everywhere.
# (Pair by pair, that is. The *combination* of all angles is new at every new distance.)
#
# The next function counts the pairs that meet new angles when frequencies change from `plain` to `scaled`, and texts get longer.

# %%
def unseen(plain, scaled, trained, length):
    seen = turns(plain, trained).clamp(max=1)  # share of the circle
    reached = turns(scaled, length).clamp(max=1)
    return int((reached > seen * (1 + 1e-9)).sum())

ours, llama2 = pe_lab.inv_freq(16), pe_lab.inv_freq(128)
print("our model at 128:  ", unseen(ours, ours, 32, 128), "of 8")
print("Llama 2 at 65536:  ", unseen(llama2, llama2, 4096, 65536), "of 64")

# %% [markdown]
# ## One family
#
# Give pair $i$ the new frequency $\omega_i' = \omega_i/\sigma_i$, and call $\sigma_i$ its slow-down.
# A rule is a choice of $\sigma_i$, between 1 (kept) and $s$, the factor by which the context is stretched.
# The first wish is that no pair leaves the angles that it knows:
#
# ````{prf:proposition} Who has to be slowed
# :label: prop-slow
#
# Let a pair make $r < 1$ turns within $L_0$ positions, and slow it by $\sigma$.
# Then distances up to $sL_0$ give it no angle beyond those of distances up to $L_0$ before, if and only if $\sigma \ge s$.
# ````
#
# ````{prf:proof}
# The largest angle was $2\pi r$ and is $2\pi r s/\sigma$.
# For $\sigma < s$ it lies above $2\pi r$, and the first angles beyond lie below a full turn, where no smaller distance comes round to them.
# ````

# %% [markdown]
# The second wish is that neighbours stay apart.
# Only the fast pairs tell distance 1 from distance 2; slow them by 4, and one step is a quarter of a step.
# They have turned fully, so {prf:ref}`prop-slow` asks nothing of them.
# All rules grant the first wish, the second, or some of both.
#
# ### Linear: positions divided
#
# Position interpolation, PI, slows every pair by $s$ {cite:p}`chen2023`.
# To the model, a text of 2048 tokens then looks like 512 tokens at quarter positions.
#
# ````{prf:proposition} PI divides positions
# :label: prop-pi
#
# Frequencies $\omega_i/s$ at position $p$ and frequencies $\omega_i$ at position $p/s$ turn every pair by the same angle.
# So no pair of a text of $sL_0$ tokens leaves its trained angles.
# ````
#
# ````{prf:proof}
# $p\,(\omega_i/s) = (p/s)\,\omega_i$, and $p/s < L_0$. All $\sigma_i = s$, as {prf:ref}`prop-slow` wants.
# ````

# %%
rng = torch.Generator().manual_seed(0)
q, k = torch.randn(2, 1, 1, 128, 16, generator=rng, dtype=torch.float64)
ids = torch.arange(128)
slowed = pe_lab.RoPE(16, scaling=lambda w: scaling.linear(w, 4))
plain = pe_lab.RoPE(16)
both = slowed.rotate(q, k, ids, ids), plain.rotate(q, k, ids / 4, ids / 4)
print("divided positions:", all(map(torch.allclose, *both)))
print("new angles at 128:", unseen(ours, scaling.linear(ours, 4), 32, 128), "pairs")
print("one step of the fastest pair:", scaling.linear(ours, 4)[0].item(), "radians")

# %% [markdown]
# The first wish is granted in full, and the second not at all.
# {cite:t}`chen2023` bound the scores between trained positions; a bound does not say that the model can read them.
# Ours could not: PI was the set that doubled the perplexity.
#
# ### NTK-aware: another base
#
# Why not slow each pair a little more than its faster neighbour?
# A change of the base does that {cite:p}`peng2024`. (The name comes from neural tangent kernels, by analogy.)
#
# ````{prf:proposition} The NTK-aware base
# :label: prop-ntk
#
# With $n = d/2 \ge 2$ pairs and the base $b' = b\,s^{d/(d-2)}$, pair $i$ is slowed by $\sigma_i = s^{i/(n-1)}$:
# the fastest is kept and the slowest divided by $s$, exactly. No other base does both.
# ````
#
# ````{prf:proof}
# A new base gives $\sigma_i = (b'/b)^{2i/d}$, so $\sigma_0 = 1$ always.
# $\sigma_{n-1} = s$ means $b'/b = s^{d/(2n-2)} = s^{d/(d-2)}$, and then $\sigma_i = s^{2i/(d-2)} = s^{i/(n-1)}$.
# ````

# %%
new_base = 1e4 * 16 ** (128 / 126)
print("base for 16 times:", round(new_base))
same = torch.allclose(scaling.ntk(llama2, 16), pe_lab.inv_freq(128, base=new_base))
print("same frequencies:", same)
ratio = llama2 / scaling.ntk(llama2, 16)
print("slow-down, first and last:", ratio[0].item(), round(ratio[-1].item(), 12))
for name, w, s, trained in [("our model", ours, 4, 32), ("Llama 2", llama2, 16, 4096)]:
    print(name, "new angles in", unseen(w, scaling.ntk(w, s), trained, s * trained))
for length in (32, 64, 128):
    print(f"ntk, windows of {length:3}:", told(perplexity("ntk", length=length)))

# %% [markdown]
# The second wish is granted, the first is not: of the pairs that need $\sigma \ge s$, only the last one gets it.
# {cite:t}`peng2024` say so, and advise a factor larger than the stretch.
# Made for four times the length, our model does well at twice, and is lost at four times.
#
# ### By parts
#
# Slow the pairs that need it, keep the others, and blend in between.
# With a share $\gamma(r) = \min(1, \max(0, (r - \alpha)/(\beta - \alpha)))$ that rises with the turns,
#
# $$
# \omega_i' = (1 - \gamma(r_i))\,\frac{\omega_i}{s} + \gamma(r_i)\,\omega_i.
# $$ (eq-parts)
#
# {cite:t}`peng2024` found $\alpha = 1$ and $\beta = 32$ good for Llama.

# %%
parts = scaling.ntk_by_parts(llama2, 16, original_length=4096)
many, few = turns(llama2, 4096) >= 32, turns(llama2, 4096) <= 1
print("kept:   ", int(many.sum()), torch.equal(parts[many], llama2[many]))
print("divided:", int(few.sum()), torch.equal(parts[few], llama2[few] / 16))
print("blended:", int((~many & ~few).sum()))
print("new angles in:", unseen(llama2, parts, 4096, 65536))

# %% [markdown]
# Of 64 pairs 21 are kept, 18 divided and 25 blended, and none meets a new angle.
#
# **Llama 3** uses {eq}`eq-parts` with $\beta = 4$ {cite:p}`dubey2024`; Meta's code writes it in wavelengths.
# **YaRN**, in its authors' and in Hugging Face's code, makes the ramp straight in the *index* of the pair, from 32 turns to 1, rounded outwards.
# Its other half, a temperature, comes below.
# **LongRoPE** has no formula: each factor is searched {cite:p}`ding2024`, and stands in the config.

# %%
llama3 = pe_lab.inv_freq(128, base=500_000.0)
wave = 2 * pi / llama3
smooth = ((8192 / wave - 1) / (4 - 1)).clamp(0, 1)
by_wave = (1 - smooth) * llama3 / 8 + smooth * llama3
same = torch.allclose(scaling.llama3(llama3, 8, original_length=8192), by_wave)
print("Llama 3's, by wavelengths:", same)
slow = llama2 / scaling.yarn(llama2, 16, original_length=4096)
print("YaRN keeps", int((slow == 1).sum()), "and divides", int((slow > 15.99).sum()))
print("pair 40:", [round((llama2 / parts)[40].item(), 2), round(slow[40].item(), 2)])

# %% [markdown]
# ### A larger base, without a factor
#
# One can also choose a base and train on: {cite:t}`xiong2024` call it ABF, adjusted base frequency.
# Llama 3 has 500000 {cite:p}`dubey2024`, Code Llama a million {cite:p}`roziere2023`, as has Qwen2.5 {cite:p}`yang2024`.
# By {prf:ref}`prop-ntk` any base is NTK-aware with *some* factor.

# %%
for base in (10_000, 500_000, 1_000_000):
    factor = (base / 1e4) ** (126 / 128)
    slowest = 2 * pi / pe_lab.inv_freq(128, base=base)[-1].item()
    print(f"base {base:7}: NTK-aware factor {factor:4.1f}, slowest wave {slowest:9.0f}")

# %% [markdown]
# So Code Llama's base is NTK-aware scaling by 93, in a model trained on texts 4 times as long as Llama 2's.
# That is a factor far larger than the stretch, as advised above.
# Here is the whole family, for Llama 2's heads and 16 times its length.

# %% mystnb={"figure": {"name": "fig-stretch-family", "caption": "Slow-down of each pair against its wavelength, over the trained length, for Llama 2 stretched 16 times. Left of the vertical line pairs have turned fully; right of it, only a slow-down of 16 or more keeps them to trained angles."}, "image": {"alt": "Six curves on logarithmic axes. Linear is flat at sixteen. NTK-aware and base one million rise as straight lines from one. By parts, YaRN and Llama 3 stay at one, climb, and are flat at sixteen from the vertical line on."}}
rules = {
    "linear": scaling.linear(llama2, 16),
    "NTK-aware": scaling.ntk(llama2, 16),
    "by parts": scaling.ntk_by_parts(llama2, 16, original_length=4096),
    "YaRN": scaling.yarn(llama2, 16, original_length=4096),
    "Llama 3's": scaling.llama3(llama2, 16, original_length=4096),
    "base 10⁶": pe_lab.inv_freq(128, base=1e6),
}
fig = plots.lines(waves / 4096, {n: llama2 / w for n, w in rules.items()}, xlog=True,
                  ylog=True, xlabel="wavelength / trained length", ylabel="slow-down")
fig.axes[0].axvline(1, color="#777777", lw=1)
plots.plain_ticks(fig.axes[0])
fig

# %%
print(f"{'':10} kept  between  16 or more  new angles")
for name, w in rules.items():
    slow = llama2 / w
    kept, most = int((slow < 1 + 1e-9).sum()), int((slow > 16 - 1e-9).sum())
    lost = unseen(llama2, w, 4096, 65536)
    print(f"{name:10} {kept:4} {64 - kept - most:8} {most:11} {lost:11}")

# %% [markdown]
# In {numref}`fig-stretch-family` only linear keeps no pair, and only NTK-aware has pairs with new angles, 17 of them.
# So "slow channels are stretched while fast channels stay untouched" holds for the ramps, with a third group in the middle.
# The ramps and the large base grant both wishes, and differ in who pays: pair 40, with two turns, is slowed by 10.57 by parts, and by 3.59 in YaRN.

# %% [markdown]
# ## YaRN's temperature
#
# The other half of YaRN multiplies cosines and sines by a gain $g = 0.1 \ln s + 1$.
#
# ````{prf:proposition} A gain is a temperature
# :label: prop-gain
#
# If the turned queries and keys are both multiplied by $g$, every score $z$ is multiplied by $g^2$.
# Attention is then $\operatorname{softmax}(z/t)$ with $t = 1/g^2$.
# ````
#
# ````{prf:proof}
# $(g\,q')\cdot(g\,k') = g^2\,q'\cdot k'$, and softmax sees nothing else of queries and keys.
# ````

# %%
gain = 0.1 * log(4) + 1  # scaling.yarn_gain(4)
loud = pe_lab.RoPE(16, gain=gain)
scores = [a @ b.mT for a, b in (r.rotate(q, k, ids, ids) for r in (plain, loud))]
print(torch.allclose(scores[1], gain**2 * scores[0]))
for g in (gain, scaling.yarn_gain(16)):
    print(f"gain {g:.3f}, of scores {g**2:.3f}, temperature {1 / g**2:.3f}")
print(f"only on q: {gain:.3f}, on both and on the scores: {gain**4:.3f}")

# %% [markdown]
# The price of implementing it is zero, and the invitation to slip is large.
# Put the gain on $q$ alone, or $1/t$ on both, or the gain on both and $1/t$ on the scores: 1.296 becomes 1.139 or 1.681.
# Nothing fails, and no shape tells.
#
# Why should attention be sharper? In longer texts, there are more keys to share the weight. Take independent normal scores:

# %%
z = torch.randn(4000, 128, generator=rng, dtype=torch.float64)

def entropy(scores):
    return torch.special.entr(scores.softmax(dim=1)).sum(dim=1).mean().item()

for spread in (1, 2, 4):
    few, many = entropy(spread * z[:, :32]), entropy(spread * z)
    sharper = entropy(gain**2 * spread * z)
    print(f"scores ± {spread}: 32 keys {few:.2f}, 128 keys {many:.2f},"
          f" with gain {sharper:.2f}")

# %% [markdown]
# With four times as many keys the entropy rises.
# The gain brings it back if scores are spread widely, ± 4, and hardly if they are not.
# So 0.1 cannot follow from this argument: {cite:t}`peng2024` *fitted* it, to the perplexities of four sizes of LLaMA.
# Predict whether it helps our model, whose attention is sharp.

# %%
lengths, seen = lab.load("panorama").profile("rope", "entropy")
for length in (32, 128):
    print(f"entropy at {length:3}:", told(seen[:, lengths.tolist().index(length)]))
for steps in (0, 20, 100):
    with_gain, without = (perplexity(w, steps) for w in ("yarn", "yarn-no-gain"))
    print(f"{steps:3} steps: with gain {told(with_gain)}, without {told(without)}")

# %% [markdown]
# Its entropy nearly doubles, as the argument has it, and yet the gain does not help: without it, perplexity is the same or a hair lower.
# The argument says in which direction attention drifts.
# Whether a model minds is a question to that model.
# LLaMA, stretched without training, did; ours does not.

# %% [markdown]
# ## Dynamic: a factor that follows the text
#
# A factor of 4 costs something in short texts: why not use the one that the text needs?
# Dynamic NTK takes $\max(1, L/L_0)$ at length $L$, or with a configured $s$, as Hugging Face has it, $\max(1, sL/L_0 - (s - 1))$.
# The base grows with the text.
#
# But a model that writes *stores* turned keys: the one at $n$ when the text has $n + 1$ tokens, by $n\,\omega(n + 1)$.
# The query at $m$ expects $n\,\omega(m + 1)$. How far off are keys when token 128 is written?

# %%
dynamic = {
    L: scaling.dynamic_ntk(ours, 2, length=L, original_length=32) for L in range(1, 129)
}
for n in (31, 32, 63, 95):
    base = (1 / dynamic[n + 1][-1].item()) ** (16 / 14)  # the last is b^(−14/16)
    error = n * (dynamic[n + 1] - dynamic[128]).max().item()
    print(f"key at {n}: stored at base {base:5.0f}, off by up to {error:.1f} radians")
stored = torch.stack([n * dynamic[n + 1] for n in range(128)])
now = torch.stack([n * dynamic[128] for n in range(128)])
a, b = (pe_lab.apply_rope(k, x.cos(), x.sin(), layout="half") for x in (stored, now))
error = (q[..., -1:, :].contiguous() @ (a - b).mT).abs().max() / 4
print("scores off by up to", round(error.item(), 1), "where they spread by about 1")

# %% [markdown]
# More than a radian for every key up to 95, and scores that are off by two and a half times their spread.
# The remedy is to store keys *before* they are turned {cite:p}`peng2024`, or to decide on a factor once for a whole generation.
# Released code did neither; {ref}`the reports <bug-ntk-cache>` are from the method's first weeks, July 2023.

# %% [markdown]
# ### See it live
#
# Yet the inventor of NTK-aware scaling wrote in one of them that the model worked all the same.
# We can look: a model like the one above, trained for some seconds on your machine.
# `Stored` turns each token once, by the frequencies of its own moment, which is what decoding with stored keys does in every layer.
# Only comparisons are printed; digits depend on the processor.

# %%
from pe_lab.lab.experiments import panorama, stretch
from pe_lab.lab.extrapolation import position_losses, windows
from pe_lab.lab.training import Session

class Stored(pe_lab.PositionalEncoding):
    def rotate(self, q, k, q_pos, k_pos):
        s = ((q_pos[:, None] + 1) / 32).clamp(min=1).double()
        angles = q_pos[:, None] * ours * s ** (-torch.arange(8) / 7)
        cos, sin = angles.cos().float(), angles.sin().float()
        return [pe_lab.apply_rope(x, cos, sin, layout="half") for x in (q, k)]

# %%
config = stretch.config("rope", "quick", "topics")
model, _ = panorama.language_model(config, 0, Session())
rows = windows(panorama.held_out_ids(lab.text.load_text("topics")), 128, 8192)
ways = {way: make(model, config) for way, make in stretch.WAYS["rope"].items()
        if way in ("plain", "linear", "dynamic", "yarn")}
live = {}
for way, encoding in (ways | {"stored": Stored()}).items():
    model.encoding = encoding
    live[way] = position_losses(model, rows).mean().exp().item()
print("linear above YaRN:          ", live["linear"] > live["yarn"])
print("stored keys above one pass: ", live["stored"] > live["dynamic"])
print("stored keys below unscaled: ", live["stored"] < live["plain"])

# %% [markdown]
# So the report was not wrong.
# Text predicted with stale keys is a little worse than with right ones, and better than without any scaling.
# A likely reason: recent keys carry most of the weight, and they are the least stale.
# "It still works" is how such a bug survives.
# What it breaks is an equality, incremental and full, and a test of that equality sees it at once.

# %% [markdown]
# ## Ten ways, measured
#
# Now all of them, on the model from the beginning, three seeds each: windows of 128, four times the trained length.
# Two remarks on fairness.
# LongRoPE's eight factors were searched on the training text, at this very length.
# And 32 turns make no sense here, since our fastest pair turns 5.1 times in 32 characters: by parts and YaRN keep pairs from there on.
# (For YaRN nothing changes: its ramp begins at the first pair either way.)

# %%
ways = result.of("rope")[0].config["ways"]

def slowed(way):  # of the first seed; only LongRoPE's differ between seeds
    return torch.tensor(result.profile("rope", f"slowed/{way}")[1][0])

def beyond(slow, trained=32, length=128):  # how far past the trained arc, at most
    return (length / trained / slow[turns(ours, trained) < 1]).clamp(min=1).max().item()

default = scaling.yarn(ours, 4, original_length=32)
print("YaRN with 32 turns is the same:", torch.allclose(default, stretch.YARN(ours)))
print("the fastest pair turns", round(turns(ours, 32)[0].item(), 1), "times within 32")
print(f"{'':13}slow-down of pairs 0, 1, 2, 7     beyond      at 128")
for way in sorted(set(ways) - {"dynamic"}, key=lambda w: perplexity(w).mean()):
    row = "  ".join(f"{slowed(way)[i]:5.2f}" for i in (0, 1, 2, 7))
    print(f"{way:13}{row}   × {beyond(slowed(way)):4.2f}   {told(perplexity(way))}")

# %% mystnb={"figure": {"name": "fig-stretch-zero", "caption": "Perplexity in windows of 128 of a model trained at 32, without further training. Mean and standard deviation over three seeds."}, "image": {"alt": "Eleven bars in order. The searched factors, the large bases and YaRN are near seven, Llama 3 and by parts near nine, NTK-aware and dynamic near twelve, plain near sixteen, linear near thirty."}}
order = sorted(ways, key=lambda way: perplexity(way).mean())
means, spreads = zip(*(lab.mean_spread(perplexity(w)) for w in order), strict=True)
plots.bars(order, means, errors=spreads, xlabel="perplexity at 128", decimals=1)

# %% [markdown]
# Read {numref}`fig-stretch-zero` and the table from below.
# Linear slows the fastest pair, and nothing is worse, not even new angles.
# Plain and NTK-aware keep it, and take slow pairs 4 and 2.69 times as far as in training.
# All others go 1.5 times as far or less.
# YaRN without its gain, Llama 3 and by parts differ in pair 1 alone, which turned 1.6 times in training.
# Slowed by 1.60, 2.48 and 2.76 they stand at 7.03, 9.05 and 9.68.

# %% [markdown]
# So both wishes count, and the second extends to a pair that has turned only once or twice.
# The search found that by itself: its lists begin with 1.00 and 1.41, or with 1.00 twice.
# For the slow pairs it chose 2.83 and not 4, which takes all six of them 1.41 times as far as they had been.
# {prf:ref}`prop-slow` says when angles are new, not how much a few new ones hurt.

# %% [markdown]
# ### A hundred steps more
#
# Nobody leaves it at that: the stretched model is trained on, briefly, in long windows.
# Here these are 20 or 100 steps of 8 windows, a tenth of the tokens that it had seen before.
# Predict: does linear still lose to doing nothing?

# %%
recipe, tuning = (result.of("rope")[0].config[name] for name in ("recipe", "tuning"))
print("tokens before:", recipe["steps"] * recipe["batch_size"] * 32)
print("tokens after: ", 100 * tuning["batch_size"] * 128)
for way in sorted(ways, key=lambda way: perplexity(way, 100).mean()):
    row = "  ".join(told(perplexity(way, steps)) for steps in (0, 20, 100))
    print(f"{way:13}{row}")

# %% mystnb={"figure": {"name": "fig-stretch-tuned", "caption": "Perplexity in windows of 128 after 0, 20 and 100 steps of training on windows of 128. Mean and range over three seeds."}, "image": {"alt": "Six falling curves on a logarithmic axis. Linear starts at thirty and ends highest; plain and NTK-aware end between five and a half and six; Llama 3, YaRN and base one million end together near five."}}
shown = ("linear", "plain", "ntk", "llama3", "yarn", "base-1e6")
tuned = {w: [perplexity(w, steps) for steps in (0, 20, 100)] for w in shown}
fig = plots.lines(
    (0, 20, 100), {w: [v.mean() for v in vs] for w, vs in tuned.items()},
    bands={w: ([min(v) for v in vs], [max(v) for v in vs]) for w, vs in tuned.items()},
    markers=True, ylog=True, xlabel="steps at 128", ylabel="perplexity at 128",
)
plots.plain_ticks(fig.axes[0])
fig

# %% [markdown]
# Seven ways end between 4.92 and 5.05: at 128 they are as good as the model was at 32.
# Plain comes to 6.06 and linear only to 6.66: it has to learn anew what a step is.
# {numref}`fig-stretch-tuned` also shows what training is spared by a good start: YaRN after 20 steps is ahead of plain after 100.

# %%
orders = [("ntk", "linear"), ("yarn", "ntk"), ("linear", "plain")]
for (low, high), steps in product(orders, (0, 100)):
    every = bool((perplexity(low, steps) < perplexity(high, steps)).all())
    print(f"{steps:3} steps: {low} below {high} in every seed: {every}")

# %% [markdown]
# YaRN before NTK-aware before PI without training, as {cite:t}`peng2024` found: yes.
# YaRN first after training: yes, beside a large base.
# But they report that after training NTK-aware is *behind* PI; here it is ahead.
# And {cite:t}`chen2023` got PI to work within 1000 steps, while our hundred leave it behind plain training.

# %% [markdown]
# What is different here?
# This model is tiny and reads characters: the last few decide almost everything, and PI blurs them.
# It has two pairs that turn fully; Llama's heads have 46.
# And a hundred steps are few.
# Take from these tables what the mechanism explains, and not the ranking.

# %% [markdown]
# ### What short texts pay
#
# A stretched model is used for short texts, too.
# Windows of 32, which the model could read at 4.99:

# %%
print(f"{'':9}at 32: at once      after 100 steps")
for way in ("plain", "linear", "ntk", "by-parts", "yarn", "longrope", "base-1e6"):
    once, after = (perplexity(way, steps, length=32) for steps in (0, 100))
    print(f"{way:9} {told(once)}    {told(after)}")

# %% [markdown]
# At once, NTK-aware is almost free, YaRN costs a third, and linear is ruin.
# After training, all but linear have nearly what they had: 5.11 for YaRN.
# (Even plain loses, with 5.35: it was trained on at another length.)
# A linear or YaRN factor is there in short texts as well; only dynamic scaling asks how long the text is.

# %% [markdown]
# ### Beyond the tuned length
#
# Trained at 32, tuned at 128, read at 256: does the next stretch come for free?
# Predict which one degrades least, before you look at {numref}`fig-stretch-beyond`.

# %%
for way in ("dynamic", "ntk", "plain", "linear", "yarn", "base-1e6"):
    row = [told(perplexity(way, 100, length)) for length in (128, 256)]
    print(f"{way:9} at 128 {row[0]}   at 256 {row[1]}")

# %% mystnb={"figure": {"name": "fig-stretch-beyond", "caption": "Perplexity against the length of the window, after 100 steps at 128. Mean and range over three seeds."}, "image": {"alt": "Six curves, nearly level from thirty-two to one hundred twenty-eight, which all rise at two hundred fifty-six, dynamic and NTK-aware least and the base of a million most."}}
curves = {w: result.profile("rope", f"perplexity/{w}/100")[1]
          for w in ("dynamic", "ntk", "plain", "linear", "yarn", "base-1e6")}
fig = plots.lines(
    lengths, {w: c.mean(axis=0) for w, c in curves.items()},
    bands={w: (c.min(axis=0), c.max(axis=0)) for w, c in curves.items()},
    markers=True, xlog=True, xlabel="window", ylabel="perplexity",
)
fig.axes[0].set_xticks(lengths, [str(n) for n in lengths])
fig.axes[0].xaxis.minorticks_off()
fig

# %% [markdown]
# No.
# Every curve turns up: the new context ends where its training ended, as the old one did.
# The order is almost the opposite of the one at 128, with the large base last.
# We have no explanation for that which we could prove; it is a reason to measure at the length you need, and to tune there.

# %% [markdown]
# ## Sinusoids and tables
#
# All rules are functions of frequencies, so they apply to sinusoids that are added to the words, too.
# There PI means positions divided as well, and YaRN keeps fast waves and slows slow ones.
# Predict the order at 128, with what RoPE has taught you.

# %%
for way in ("plain", "ntk", "yarn", "linear"):
    row = [told(perplexity(way, steps, scheme="sinusoidal")) for steps in (0, 100)]
    print(f"{way:7} at 128: {row[0]} at once, {row[1]} after 100 steps")

# %% [markdown]
# It is the other way round: linear is first, and YaRN and NTK-aware are behind.
# For RoPE, an angle is a *distance*, and the small ones matter most.
# A sinusoidal row is a *place*, all waves at once, and the model knows 32 of them.
# How far are the rows of 128 places from the curve through the trained ones?

# %%
def sines(inv_freq, places):
    angles = places[:, None] * inv_freq
    return torch.cat((angles.sin(), angles.cos()), dim=1)

wide, places = pe_lab.inv_freq(64), torch.arange(128).double()
trained = sines(wide, torch.linspace(0, 31, 3101, dtype=torch.float64))
for name, rule in [("plain", lambda w: w), ("ntk", stretch.NTK),
                   ("yarn", stretch.YARN), ("linear", stretch.LINEAR)]:
    away = torch.cdist(sines(rule(wide), places), trained).amin(dim=1).mean().item()
    print(f"{name:7} mean distance {away:4.2f} of a norm of {32**0.5:4.2f}")

# %% [markdown]
# The distances have the order of the perplexities.
# Only linear stays on the curve of trained rows; a wave that is slowed beside one that is kept makes a row that belongs to no place.
#
# Now a learned table, with nothing between its rows.
# One reads that interpolation is useless for it.
# But rows can be resampled: new row 40 of 128 lies between old rows 9 and 10.

# %%
table = torch.arange(32.0)[:, None]
print("row 40 of 128 is read at", round(pe_lab.resample_rows(table, 128)[40].item(), 2))
for way in result.of("learned")[0].config["ways"]:
    for steps in (0, 100):
        at_32, at_128 = (perplexity(way, steps, n, "learned") for n in (32, 128))
        print(f"{way:9}{steps:4} steps: at 32 {told(at_32)}, at 128 {told(at_128)}")

# %% [markdown]
# At once little is gained, 16.34 against 17.66, and short texts are spoiled: halfway between two learned rows is a row that nobody learned.
# After 100 steps the resampled table is ahead, with 8.54 against 10.05.
# So "useless" is wrong, and "works as for a formula" as well, which has a meaning between its rows.
# (Vision Transformers resample theirs when images grow, and train on.)

# %% [markdown]
# ## Compare with real code
#
# Four configs, cut down to the keys about position: [Llama 3.1](https://huggingface.co/meta-llama/Llama-3.1-8B),
# [Qwen2.5](https://huggingface.co/Qwen/Qwen2.5-7B-Instruct) with the block that its page gives for long texts,
# [DeepSeek-V3](https://huggingface.co/deepseek-ai/DeepSeek-V3)
# and [Phi-3](https://huggingface.co/microsoft/Phi-3-mini-128k-instruct), whose lists have 48 searched numbers, rounded here to two places.
# `pe_lab.hf.from_config` reads what they mean, and says what it had to assume.

# %%
original = "original_max_position_embeddings"
llama31 = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "max_position_embeddings": 131072, "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, original: 8192,
                     "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
qwen25 = {
    "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
    "max_position_embeddings": 32768, "rope_theta": 1000000.0,
    "rope_scaling": {"type": "yarn", "factor": 4.0, original: 32768},
}
deepseek3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128,
    "qk_rope_head_dim": 64, "max_position_embeddings": 163840, "rope_theta": 10000,
    "rope_scaling": {"type": "yarn", "factor": 40, original: 4096, "mscale": 1.0,
                     "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1},
}

# %%
short = [1.1] * 3 + [1.3, 1.35, 1.35, 1.4, 1.55] + [2.0] * 17 + [2.05] * 6
short += [2.1, 2.1, 2.15] + [2.25] * 5
short += [2.4, 2.45, 2.5, 2.7, 2.7, 2.75, 2.8, 2.9, 3.05]
long = [
    1.07, 1.12, 1.15, 1.42, 1.57, 1.8, 2.13, 2.13, 3.01, 5.91, 6.95, 9.07, 9.93, 10.71,
    11.13, 14.61, 15.41, 19.81, 37.28, 38.28, 38.6, 40.12, 46.2, 50.94, 53.66, 54.94,
    56.9, 57.29, 59.99, 60.87, 60.89, 61.72, 62.92, 62.96, 63.42, 63.82, 63.84, 63.9,
    63.94, 64.07, 64.11, 64.12, 64.15, 64.19, 64.24, 64.57, 64.69, 64.76,
]
phi3 = {
    "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32,
    "max_position_embeddings": 131072, original: 4096, "rope_theta": 10000.0,
    "rope_scaling": {"type": "longrope", "short_factor": short, "long_factor": long},
}

# %%
released = {"Llama 3.1 8B": llama31, "Qwen2.5 7B, YaRN": qwen25,
            "DeepSeek-V3": deepseek3, "Phi-3 mini 128k": phi3}
read = {n: pe_lab.hf.from_config(c, length=131072) for n, c in released.items()}
print(f"{'':17}pairs  kept   slow-down   gain  softmax scale")
for name, reading in read.items():
    rope = reading.encoding
    slow = pe_lab.inv_freq(rope.rotary_dim, base=rope.base) / rope.inv_freq
    print(f"{name:17}{len(slow):5} {int((slow < 1 + 1e-9).sum()):5}"
          f"   {slow[0].item():4.2f} … {slow[-1].item():5.2f}  {rope.gain:5.3f}"
          f"  × {reading.softmax_scale_factor:5.3f}")

# %% mystnb={"figure": {"name": "fig-stretch-released", "caption": "Wavelengths of four released models before (grey) and after (green) their scaling rule. Lines: the trained length and the extended one."}, "image": {"alt": "Four panels, each with a straight grey line and a green one that leaves it upwards, in Llama, Qwen and DeepSeek from a middle pair on, in Phi-3 nearly from the start."}}
lines = {"Llama 3.1 8B": (8192, 131072), "Qwen2.5 7B, YaRN": (32768, 131072),
         "DeepSeek-V3": (4096, 163840), "Phi-3 mini 128k": (4096, 131072)}
with plots.figure(2, 2, size=(6.8, 5.6)) as (fig, axes):
    for ax, (name, reading) in zip(axes, read.items(), strict=True):
        rope = reading.encoding
        before = pe_lab.inv_freq(rope.rotary_dim, base=rope.base)
        ax.semilogy(2 * pi / before, color=plots.color("content"), lw=2)
        ax.semilogy(2 * pi / rope.inv_freq, color=plots.color("position"), lw=2)
        for length in lines[name]:
            ax.axhline(length, color=plots.color("highlight"), lw=1.2, ls="--")
        ax.set(title=name, xlabel="pair", ylabel="positions for a turn")
fig

# %% [markdown]
# Three ramps and one list, in {numref}`fig-stretch-released`.
# Llama 3.1 stretches 16 times, from 8192 to 131072, with slow-downs of 8: at full length its slow pairs do meet new angles.
# Phi-3's list slows even the fastest pair a little and ends at 64.76, twice its factor of 32: the family has members beyond $s$.
# DeepSeek's gain is 1, and its softmax scale is not.

# %% [markdown]
# ### What goes wrong when configs are read
#
# **The block.** It was `rope_scaling` with `rope_theta` beside it, and is `rope_parameters` with `rope_theta` inside.
# A reader that knows one of them falls back to no scaling or to the base 10000, which {ref}`short prompts cannot show <bug-llama3-rule>`.
#
# **Which number counts.** Qwen's documentation adds a block to a config that still says 32768.
# Code that computes the factor from the two lengths {ref}`gets 1 <bug-yarn-factor>`. The note says what is read here:

# %%
new = {k: v for k, v in llama31.items() if k != "rope_theta"}
new["rope_parameters"] = new.pop("rope_scaling") | {"rope_theta": 500000.0}
again, old = pe_lab.hf.from_config(new), read["Llama 3.1 8B"]
print("either key:", torch.equal(again.encoding.inv_freq, old.encoding.inv_freq))
print(*(n for n in read["Qwen2.5 7B, YaRN"].notes if "contradicts" in n))

# %% [markdown]
# **Two corrections.** DeepSeek gives `mscale` and `mscale_all_dim` {cite:p}`deepseek2024`.
# The gain on cosines and sines is the quotient of two gains, 1 if the numbers are equal; the softmax scale is multiplied by the square of the second.
# Ports {ref}`saw the 1, and left out both <bug-two-gains>`.
#
# **A switch.** LongRoPE has two lists, and the text's length decides: stored keys {ref}`belong to the other one <bug-long-switch>` from token 4097 on.

# %%
for name, m in [("DeepSeek-V2", 0.707), ("DeepSeek-V3", 1.0)]:
    gain, own = scaling.yarn_gain(40, mscale=m, mscale_all_dim=m), 0.1 * m * log(40) + 1
    print(f"{name}: gain {gain:g}, softmax scale × {own**2:.3f}")
before, after = (pe_lab.hf.from_config(phi3, length=n).encoding for n in (4096, 4097))
turned = 4000 * (before.inv_freq - after.inv_freq)
print("Phi-3, key at 4000, across the switch:", round(turned.max().item()), "radians")

# %% [markdown]
# ## Common mistakes
#
# **Dynamic NTK below the trained length.** Without the maximum, Hugging Face's formula gives less than 1, or less than 0.
# A model trained at 2048 and served for 512 tokens, with a factor of 2, {ref}`gets a negative base <bug-negative-base>`.

# %%
s = 2 * 512 / 2048 - (2 - 1)
print("factor:", s, " its power is a", type(s ** (64 / 62)).__name__, "number")
print("with the maximum:", max(1.0, s))

# %% [markdown]
# **One tenth of the training data** is often said to be what YaRN needs.
# {cite:t}`peng2024` write ten times fewer tokens *than earlier extensions*, and about 0.1 % of the tokens of pre-training.
#
# **The trained length left out.** A factor of 4 is a factor over something.
# `max_position_embeddings` may be the trained length, or already the extended one.
# The doctor asks:

# %%
vague = qwen25 | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
report = pe_lab.diagnose(vague)
print(*(f"{f.check}: {f.message}" for f in report.findings if f.severity == "risky"))

# %% [markdown]
# ## Exercises
#
# Each stub runs as it is.
# Replace the dots, run the cell, and `check` names the kind of mistake if there is one.

# %% [markdown]
# `````{exercise} Which pairs have not seen a full turn? ★
# :label: ex-15-unseen
#
# Write `unseen_pairs(head_dim, base, length)`: how many pairs of a head do not turn once within so many positions.
# You may use `pe_lab.inv_freq`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# `pe_lab.inv_freq(head_dim, base=base)` has one frequency for each pair, in radians per position.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# After `length` positions a pair has turned by frequency times length.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Compare with $2\pi$, and sum the truth values.
# ````
# `````

# %% tags=["exercise"]
def unseen_pairs(head_dim, base, length):
    """How many pairs turn less than once."""
    ...


pe_lab.check("15-unseen", unseen_pairs)
# %% [markdown]
# ````{solution} ex-15-unseen
# :class: dropdown
#
# ```python
# def unseen_pairs(head_dim, base, length):
#     """How many pairs turn less than once."""
#     angles = pe_lab.inv_freq(head_dim, base=base) * length
#     return int((angles < 2 * pi).sum())
#
#
# pe_lab.check("15-unseen", unseen_pairs)
# ```
# ````

# %% [markdown]
# `````{exercise} A base for the factor ★
# :label: ex-15-base
#
# Write `new_base(base, factor, head_dim)`: the base with which the fastest pair is kept and the slowest turns slower by exactly `factor`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# The slowest pair is number $d/2 - 1$. What is its frequency, as a power of the base?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# It is $b^{-(d-2)/d}$; the new one has to be that over $s$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# {prf:ref}`prop-ntk` has the power of $s$ by which the base grows.
# ````
# `````

# %% tags=["exercise"]
def new_base(base, factor, head_dim):
    """The NTK-aware base."""
    ...


pe_lab.check("15-base", new_base)
# %% [markdown]
# ````{solution} ex-15-base
# :class: dropdown
#
# ```python
# def new_base(base, factor, head_dim):
#     """The NTK-aware base."""
#     return base * factor ** (head_dim / (head_dim - 2))
#
#
# pe_lab.check("15-base", new_base)
# ```
# ````

# %% [markdown]
# `````{exercise} By parts ★★
# :label: ex-15-parts
#
# Write `by_parts(inv_freq, factor, length)`: {eq}`eq-parts` with $\alpha = 1$ and $\beta = 32$, for a trained `length`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# First the turns of each pair, then the share that is kept, then the blend.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Turns are `inv_freq * length / (2 * pi)`.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `((turns - 1) / 31).clamp(0, 1)` is the share.
# ````
# `````

# %% tags=["exercise"]
def by_parts(inv_freq, factor, length):
    """Frequencies: many turns kept, few divided."""
    ...


pe_lab.check("15-parts", by_parts)
# %% [markdown]
# ````{solution} ex-15-parts
# :class: dropdown
#
# ```python
# def by_parts(inv_freq, factor, length):
#     """Frequencies: many turns kept, few divided."""
#     kept = ((inv_freq * length / (2 * pi) - 1) / 31).clamp(0, 1)
#     return (1 - kept) * inv_freq / factor + kept * inv_freq
#
#
# pe_lab.check("15-parts", by_parts)
# ```
# ````

# %% [markdown]
# `````{exercise} A stored key under dynamic NTK ★★
# :label: ex-15-drift
#
# A key at position `n` was turned and stored when the text had `then` tokens. Now it has `now`.
# Write `drift(inv_freq, n, then, now, factor, original)`: by how many radians, without sign, each pair of the stored key differs from what it should be now.
# You may use `scaling.dynamic_ntk`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Two sets of frequencies, one for each length.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The angle of a key is its own position times the frequency.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `scaling.dynamic_ntk(inv_freq, factor, length=then, original_length=original)` is the first set.
# ````
# `````

# %% tags=["exercise"]
def drift(inv_freq, n, then, now, factor, original):
    """|angle stored − angle expected| of each pair."""
    ...


pe_lab.check("15-drift", drift)
# %% [markdown]
# ````{solution} ex-15-drift
# :class: dropdown
#
# ```python
# def drift(inv_freq, n, then, now, factor, original):
#     """|angle stored − angle expected| of each pair."""
#     old, new = (
#         scaling.dynamic_ntk(inv_freq, factor, length=x, original_length=original)
#         for x in (then, now)
#     )
#     return (n * (old - new)).abs()
#
#
# pe_lab.check("15-drift", drift)
# ```
# ````

# %% [markdown]
# `````{exercise} What does this config do at that length? ★★
# :label: ex-15-config
#
# Write `slowest(config, length)`: by which factor the slowest pair of this model is slowed, in texts of `length` tokens.
# You may use `pe_lab.hf.from_config`, whose encodings have `.inv_freq`, `.base` and `.rotary_dim`.
# One of the three configs that are tried is dynamic, trained at 4096 with factor 2, and is asked about 32768 tokens.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Some rules look at the length. Which argument of `from_config` is for them?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The slow-down is the old frequency over the new one.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# The old frequencies are `pe_lab.inv_freq(rope.rotary_dim, base=rope.base)`; the slowest is the last.
# ````
# `````

# %% tags=["exercise"]
def slowest(config, length):
    """Old frequency over new one, of the last pair."""
    ...


pe_lab.check("15-config", slowest)
# %% [markdown]
# ````{solution} ex-15-config
# :class: dropdown
#
# ```python
# def slowest(config, length):
#     """Old frequency over new one, of the last pair."""
#     rope = pe_lab.hf.from_config(config, length=length).encoding
#     before = pe_lab.inv_freq(rope.rotary_dim, base=rope.base)
#     return (before[-1] / rope.inv_freq[-1]).item()
#
#
# pe_lab.check("15-config", slowest)
# ```
# ````

# %% [markdown]
# `````{exercise} Two bugs in a YaRN ★★★
# :label: ex-15-repair
#
# This function should return the frequencies of {eq}`eq-parts` and the gain that $q$ and $k$ are each multiplied by. It has two bugs. Write `repaired`.
#
# ```python
# def broken(inv_freq, factor, length):
#     turns = inv_freq * length / (2 * pi)
#     ramp = ((turns - 1) / 31).clamp(0, 1)
#     frequencies = ramp * inv_freq / factor + (1 - ramp) * inv_freq
#     gain = (0.1 * log(factor) + 1) ** 2
#     return frequencies, gain
# ```
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Run it for factor 4, and print the slow-down of the first and of the last pair.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# {prf:ref}`prop-gain`: what happens to a score if both of its sides are multiplied by `gain`?
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# The share that is *kept* grows with the turns; and $1/t$ is the gain of the score, not of its sides.
# ````
# `````

# %% tags=["exercise"]
def repaired(inv_freq, factor, length):
    """(frequencies, gain on q and k each)."""
    ...


pe_lab.check("15-repair", repaired)
# %% [markdown]
# ````{solution} ex-15-repair
# :class: dropdown
#
# ```python
# def repaired(inv_freq, factor, length):
#     """(frequencies, gain on q and k each)."""
#     turns = inv_freq * length / (2 * pi)
#     kept = ((turns - 1) / 31).clamp(0, 1)
#     frequencies = (1 - kept) * inv_freq / factor + kept * inv_freq
#     return frequencies, 0.1 * log(factor) + 1
#
#
# pe_lab.check("15-repair", repaired)
# ```
# ````

# %% [markdown]
# ## Quiz
#
# 1. A RoPE model trained at 4096 reads 8192 tokens. Which pairs meet angles that it has not seen?
#    (a) all; (b) the fastest, which have turned furthest; (c) those that did not turn once within 4096.
#
# ````{admonition} Answer 1
# :class: dropdown
# **c.** Not b: a pair that has turned once has been everywhere. Not a: that is true of combinations of angles, not of any pair.
# ````
#
# 2. NTK-aware scaling with factor 4 is used at exactly four times the trained length. (a) No pair meets new angles;
#    (b) all slow pairs but the slowest do; (c) only the slowest does.
#
# ````{admonition} Answer 2
# :class: dropdown
# **b.** Slow-downs grow from 1 to 4, and only the last pair gets the 4 that {prf:ref}`prop-slow` asks of all slow ones. Not a: that is linear, and by parts.
# ````

# %% [markdown]
# 3. YaRN's gain for factor 16 is 1.28. By how much are scores multiplied? (a) 1.28; (b) 1.63; (c) 0.61.
#
# ````{admonition} Answer 3
# :class: dropdown
# **b**, the square, since query and key both have the gain. Not c: that is the temperature.
# ````
#
# 4. A model with a YaRN factor of 4 in its config reads 50 tokens. Its frequencies are (a) those of training; (b) the scaled ones; (c) in between.
#
# ````{admonition} Answer 4
# :class: dropdown
# **b.** Nothing in the rule asks for the length. Not a: that is dynamic scaling, up to the trained length. Not c: no rule here does that.
# ````

# %% [markdown]
# ## Take-away
#
# - All rules give each pair a slow-down. Pairs that have not turned once need the full factor; the fastest need to be left alone.
# - In our small model PI was worst with RoPE, for its blurred steps, and best with sinusoids, whose rows are places. Other models may weigh that differently.
# - After a brief training most rules are equal at the new length, none is safe beyond it, and short texts pay a little.
# - A rule that asks for the length does not fit stored keys; a gain counts twice in a score; a config says less than it seems.
#
# {numref}`fig-stretch-plane` has the two wishes as its axes.

# %% mystnb={"figure": {"name": "fig-stretch-plane", "caption": "Seven rules in our model at four times its length, each with its perplexity. To the right, a pair that had turned fully is slowed; upwards, slow pairs go further than in training. Good rules are near the lower left corner."}, "image": {"alt": "Scattered points. Plain and NTK-aware are high at the left, linear is low at the far right, by parts is low in the middle, and YaRN, LongRoPE and the base of a million are low at the left."}}
chosen = ("plain", "ntk", "longrope", "base-1e6", "yarn", "by-parts", "linear")
fig = plots.scatter(
    [slowed(way)[1].item() for way in chosen],
    [beyond(slowed(way)) for way in chosen],
    labels=[f"{way} {perplexity(way).mean():.1f}" for way in chosen],
    xlabel="slow-down of pair 1", ylabel="slow pairs: angle / trained angle",
    size=(6.8, 4.2),
)
fig.axes[0].set_xlim(0.9, 4.7)
fig

# %% [markdown]
# ## Further reading
#
# - {cite:t}`chen2023`: position interpolation, with a bound on scores between trained positions.
# - {cite:t}`peng2024`: NTK-aware, by parts, dynamic and YaRN in one notation, and the caveats quoted here.
# - {cite:t}`ding2024`: search instead of a formula, up to two million tokens.
# - {cite:t}`xiong2024`: a larger base and long training, with the data that it takes.
# - {cite:t}`liu2024`: how base and trained length together decide where RoPE ends.
# - {cite:t}`men2024`: why a base that is too small for a length gives only the appearance of a long context.

# %% tags=["nbval-ignore-output"] reason="versions and processors differ from machine to machine"
pe_lab.provenance()
