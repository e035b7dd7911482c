# %% [markdown]
# (ch-learned)=
# # Learn a table
#
# :::{div} strip
# 50 minutes to read · under 40 s of CPU · you need {ref}`ch-break` and {ref}`ch-add`.
# :::
#
# **You will be able to**
#
# - say which rows of a table a batch trains ({ref}`ex-08-rows`), and what becomes of the others;
# - write three ways past the end of a table ({ref}`ex-08-past`), and say what each costs;
# - number tokens as RoBERTa does, with padding on either side ({ref}`ex-08-roberta`);
# - measure how many dimensions a learned table uses ({ref}`ex-08-rank`);
# - show that an encoder without its table is blind to order ({ref}`ex-08-blind`).

# %% [markdown]
# ## The 513th token
#
# A BERT keeps its positions in a table of 512 rows, learned like the words.
# Here is one of that size, before training.
# Predict what it does with a text of 513 tokens.

# %%
import torch
import pe_lab
from pe_lab import lab, plots

torch.set_num_threads(1)
positions = torch.nn.Embedding(512, 768)
print("numbers to learn:", positions.weight.numel())
print("spread of a fresh row:", round(positions.weight.std().item(), 2))
try:
    positions(torch.arange(513))
except IndexError as error:
    print("IndexError:", error)

# %% [markdown]
# It stops: there is no row 512.
# What happens to people who do not want to stop?
# And what is in the rows once they are trained?
#
# ## Try it
#
# A table of $N$ rows is asked for $L$ positions.
# Choose one way past the end after the other, and watch the dots.
# Then find the way that changes position 1, which was never in danger.

# %%
pe_lab.explore.PastTheEnd()

# %% [markdown]
# ## A row for each position
#
# The table $T$ has $N$ rows of width $d_\text{model}$.
# Position $p$ reads row $p$, and the row is added to the word:
#
# $$
# x_p = e_p + T_p, \qquad T \in \mathbb{R}^{N \times d_\text{model}}.
# $$ (eq-row)
#
# {cite:t}`gehring2017` do so in a convolutional network, {cite:t}`devlin2019` in BERT.
# Two texts of five words share the same five rows.

# %%
pe_lab.seed(0)
words, table = torch.nn.Embedding(10, 16), torch.nn.Embedding(8, 16)
ids = torch.tensor([[5, 2, 7, 2, 9], [3, 5, 4, 6, 1]])
x = words(ids) + table(torch.arange(5))
print(tuple(x.shape), "one row for both:",
      torch.allclose(x[1, 3] - words.weight[6], x[0, 3] - words.weight[2], atol=1e-6))

# %% [markdown]
# These two lines are complete: rows broadcast over the batch, and gradients reach them.
# Looking up a row is a matrix product with a vector that has a single one.
# So a table can be anything, and knows nothing else:
#
# ````{prf:proposition} What a table can say
# :label: prop-table
#
# (a) Every map from $\{0, \dots, N-1\}$ to $\mathbb{R}^d$ is a table with $N$ rows, and the only one that gives these values.
#
# (b) Two tables that agree on their first $N$ rows may differ in row $N$ by any vector.
# ````
#
# ````{prf:proof}
# (a) Row $p$ has to be the value at $p$, and then it is. (b) Nothing in the first $N$ rows enters row $N$.
# ````

# %% [markdown]
# By (a), sinusoids are one table among many.
# Inside its length, a learned table lacks nothing that a formula has.
# By (b), what is learned there says nothing about the next row.
# `pe_lab.Learned` is such a table, for any ids.

# %%
learned = pe_lab.Learned(64, 16)
with torch.no_grad():
    learned.weight.copy_(pe_lab.sinusoidal(64, 16))
x, places = torch.zeros(1, 5, 16), torch.tensor([3, 1, 4, 1, 5])
formula = pe_lab.Sinusoidal(16).embed(x, places)
print("the table is the formula:", torch.equal(learned.embed(x, places), formula))

# %% [markdown]
# Where do rows start?
# Usually at $N(0, 0.02^2)$, one reads.
# BERT's do; the code of {cite:t}`radford2019` takes 0.01 for positions beside 0.02 for words.
# PyTorch's layer takes 1, as printed above, and {ref}`ch-add` told what a size that does not fit the words can do.
# We shall meet another consequence below.

# %% [markdown]
# ## Which rows learn?
#
# Two texts, of five and of three tokens, are padded to five; the table has eight rows.
# Before you run the cell: which rows get a gradient?

# %%
ids = torch.tensor([[5, 2, 7, 2, 9], [3, 5, 4, 0, 0]])  # 0 is padding
table = pe_lab.Learned(8, 16)
x = table.embed(words(ids), torch.arange(5))
x.retain_grad()
loss = (x.sin() * (ids != 0)[..., None]).sum()
loss.backward()
print("rows:", table.weight.grad.any(dim=1).nonzero().flatten().tolist())

# %% [markdown]
# Rows 0 to 4, and rows 3 and 4 from the first text alone.
# In a sum every term gets the gradient of the sum.
# So a row collects those of all tokens that stood at its place, and a word those of all places where it stood:
#
# $$
# \frac{\partial\,\text{loss}}{\partial T_p} = \sum_{\text{tokens at } p} \frac{\partial\,\text{loss}}{\partial x}.
# $$ (eq-row-gradient)

# %%
at_place_2 = x.grad[:, 2].sum(dim=0)
of_word_5 = x.grad[0, 0] + x.grad[1, 1]
print(torch.allclose(table.weight.grad[2], at_place_2),
      torch.allclose(words.weight.grad[5], of_word_5))

# %% [markdown]
# One reads that in small data the gradients of words drown those of positions.
# {eq}`eq-row-gradient` says otherwise: both get the very same vectors, and a low row collects one from every text,
# which few words do.
# What starves are the *high* rows, which only long texts read.
# {cite:t}`devlin2019` trained nine tenths of the steps on 128 tokens, and the last tenth on 512, "to learn the positional embeddings".

# %% [markdown]
# What becomes of a row that is never read?
# It stays random noise, one reads.
# That depends on the optimizer, and for AdamW {cite:p}`loshchilov2019` there is an exact answer.
#
# ````{prf:proposition} Rows that nobody reads
# :label: prop-unread
#
# With learning rates $\eta_1, \dots, \eta_n$ and weight decay $\lambda$, AdamW multiplies a row whose gradient was always zero
# by $\prod_t (1 - \eta_t \lambda)$, which is $(1 - \eta\lambda)^n$ at a constant rate.
# ````
#
# ````{prf:proof}
# A step maps $\theta$ to $(1 - \eta\lambda)\,\theta - \eta\,\hat m / (\sqrt{\hat v} + \epsilon)$. Both averages start at zero and stay there
# as long as the gradient is zero. Only the first term is left.
# ````

# %%
def train_half(weight_decay, steps=200, rate=0.01):
    pe_lab.seed(0)
    table = pe_lab.Learned(64, 16, std=1.0)
    start = table.weight.detach().clone()
    adam = torch.optim.AdamW(table.parameters(), lr=rate, weight_decay=weight_decay)
    for _ in range(steps):
        adam.zero_grad()
        table.table(32).sin().sum().backward()  # reads rows 0 … 31
        adam.step()
    return start[32:], table.weight.detach()[32:]

# %%
start, end = train_half(weight_decay=0.0)
print("without decay, unread rows are unchanged:", torch.equal(start, end))
start, end = train_half(weight_decay=0.01)
ratio = end / start
print(f"with decay, all shrink to {ratio.min():.4f} … {ratio.max():.4f}")
print(f"(1 − 0.01 · 0.01)^200 = {(1 - 0.01 * 0.01) ** 200:.4f}")

# %% [markdown]
# So noise it is, and a little smaller.
#
# ## Is it faster, or better?
#
# A table has to find what a formula knows, or is it free to find something better?
# It is said to learn faster, since nothing analytic has to be learned; but in a sinusoid nothing is learned at all.
# The laboratory trained language models on characters, three seeds each, with 32 tokens.
# They differ in their positions alone.

# %%
panorama = lab.load("panorama")
schemes = {"learned, from N(0, 1)": "learned",
           "learned, from N(0, 0.02²)": "learned-small",
           "sinusoidal": "sinusoidal", "no positions": "none"}
for name, scheme in schemes.items():
    losses = [lab.mean_spread(panorama.at(scheme, "held_out_loss", s))
              for s in (100, 300, 1000)]
    print(f"{name:26}", *(f"{mean:.3f} ± {spread:.3f}   " for mean, spread in losses))

# %% [markdown]
# After 100, 300 and 1000 steps, the formula is ahead, and by more than the spread.
# The difference is small, and in the end all three are far from the model without positions.
# {cite:t}`vaswani2017` found "nearly identical results", and chose the formula for what lies beyond.
# So do not expect speed of a table, or a loss that is better by itself.

# %% [markdown]
# ## Past the end, measured
#
# These models have tables of 256 rows, of which training read 32.
# (An honest table would have 32 rows and refuse.)
# At position 32 we may read an **untrained** row, **clamp** to row 31, **wrap** around to row 0,
# or **resample** the 32 rows to the length of the text, as {eq}`eq-resample` will say.
# Predict: which of them keeps the loss, and for how long?

# %% mystnb={"figure": {"name": "fig-learned-cliff", "caption": "Loss at each place of texts of 256 characters, the first 64 of them, mean of three seeds: four ways past the end of 32 trained rows, and sinusoids. The dashed line is a guess from frequencies."}, "image": {"alt": "All curves but one fall together to about 1.7 at place 31. There three of them jump to about 3 within one place, and sinusoids climb to 3 within four. Resampling climbs from the start and is near 3 from place 10 on."}}
ways = {"untrained": "plain", "clamp": "clamp", "wrap": "wrap", "resample": "resample"}
runs = {way: ("learned", metric) for way, metric in ways.items()}
runs["sinusoidal"] = ("sinusoidal", "plain")
losses = {name: panorama.profile(scheme, f"loss/{metric}")[1].mean(0)
          for name, (scheme, metric) in runs.items()}
guess = panorama.final("learned", "guess").mean()
fig = plots.lines(range(64), {name: loss[:64] for name, loss in losses.items()},
                  xlabel="place in the text", ylabel="loss, nats", size=(6.8, 4.2))
fig.axes[0].axhline(guess, color=plots.color("content"), ls="--", lw=1)
fig

# %%
from math import exp

for place in (31, 32, 36):
    row = "  ".join(f"{name} {loss[place]:.2f}" for name, loss in losses.items())
    print(f"place {place}:  {row}")
print(f"a guess: {guess:.2f} nats, perplexity {exp(guess):.1f}")

# %% [markdown]
# The cliff in {numref}`fig-learned-cliff` has no width: from 1.69 to 3.07 within one character, worse than a guess.
# Sinusoids go the same way in a few steps; {ref}`ch-short-long` takes other encodings there.
# Resampling is the odd one out.
# It is bad from the start, since all of its places moved.

# %%
def perplexities(result, scheme, metric):
    lengths, values = result.profile(scheme, f"perplexity/{metric}")
    each = (lab.mean_spread(v) for v in values.T)
    return "".join(f"{mean:8.2f} ± {spread:.2f}" for mean, spread in each)

print("".join(f"{length:15}" for length in (32, 64, 128, 256)))
for way, metric in ways.items():
    print(f"{way:9} {perplexities(panorama, 'learned', metric)}")
print(f"{'window':9} {perplexities(panorama, 'learned', 'window')}")

# %% [markdown]
# Over the whole text, perplexity doubles or nearly so at twice the length, whatever we do.
# At eight times, nothing is far from the guess of 20.0.
# Is it the many tokens that confuse attention?
# No: in the last line each query sees 32 tokens only, and little changes.
# The rows do it.
#
# - Untrained rows are noise.
# - Clamping makes one place of many: from 31 on, no row tells tokens apart.
# - Wrapping is kindest: all rows are trained, and neighbours stay neighbours, but for the seam.

# %% [markdown]
# ### Can neighbours be mixed?
#
# Resampling reads position $p$ of $L$ between two rows:
#
# $$
# p' = p\,\frac{N - 1}{L - 1}, \qquad T'_p = (1 - f)\,T_{\lfloor p' \rfloor} + f\,T_{\lfloor p' \rfloor + 1}, \quad f = p' - \lfloor p' \rfloor.
# $$ (eq-resample)
#
# A mixture of two rows is meaningful if the two are alike.
# Rows that start at $N(0, 1)$ are not: training adds to their noise and hardly removes any.
# So start near zero, at 0.02, and look at the neighbours.

# %% tags=["nbval-ignore-output"] reason="the text is Python's own help, which differs between versions"
from pe_lab.lab.experiments.base import transformer

task = lab.tasks.next_character(lab.text.load_text("topics"), 32)
sizes = {"d_model": 64, "num_heads": 4, "num_layers": 1, "norm": "pre"}

def likeness(std):  # mean cosine of neighbouring rows, after 200 steps
    pe_lab.seed(0)
    table = pe_lab.Learned(32, 64, std=std)
    recipe = lab.training.Recipe(200, 32, learning_rate=3e-3)
    lab.training.train(transformer(task, sizes, table), task, recipe, seed=0)
    rows = table.weight.detach()
    return torch.cosine_similarity(rows[1:], rows[:-1]).mean().item()

print("from N(0, 1), below 0.1:      ", likeness(1.0) < 0.1)
print("from N(0, 0.02²), above 0.25: ", likeness(0.02) > 0.25)

# %% [markdown]
# The losses were alike, 1.691 and 1.696 after 1000 steps; the geometry is another.
# Now the full experiment, from 0.02.
# Predict the line of resampling.

# %%
print("".join(f"{length:15}" for length in (32, 64, 128, 256)))
for way, metric in ways.items():
    print(f"{way:9} {perplexities(panorama, 'learned-small', metric)}")

# %% [markdown]
# At 32 the two tables are equally good.
# At 64, resampling now costs little, 6.62 against 5.69, where from $N(0, 1)$ it more than doubled the perplexity.
# Clamping gains, too: row 31 stands for its neighbours.
# That resampling rescues a table, and that it is of no use, are both said, and neither is wrong.
# These are different tables, and the difference is where their rows started.

# %% [markdown]
# ### After brief tuning
#
# Nobody has to stop at a repaired table: we can train on.
# (That takes longer texts, and no labels, whatever one reads.)
# From $N(0, 1)$ again, tables of 32 trained rows go on with texts of 128 characters, eight at a time.

# %%
stretch = lab.load("stretch")
print(" " * 14, "".join(f"{length:15}" for length in (32, 64, 128, 256)))
for way in ("plain", "resample"):
    for steps in (0, 20, 100):
        line = perplexities(stretch, "learned", f"{way}/{steps}")
        print(f"{way:8} {steps:3} steps {line}")

# %% [markdown]
# At 128, the length of the tuning, the resampled table is ahead after 20 steps and after 100: 8.54 against 10.05.
# New rows start from noise, each on its own; resampled ones start from their order.
# The price is paid at 32, where the old rows still know best: 6.32 against 8.23.
# So a table is unusable past its length as it stands, and not for good.

# %% [markdown]
# ## A real table
#
# MiniLM {cite:p}`wang2020minilm` is a small BERT; its descendant all-MiniLM-L6-v2, under the Apache licence, embeds sentences.
# Its position table comes with `pe_lab`: 512 rows of 384 numbers, learned from text.
# First look: how long are the rows?

# %%
T = lab.minilm.position_table().double()
norms = T.norm(dim=1)
groups = {"0": [0], "1 … 126": range(1, 127), "127": [127],
          "128 … 509": range(128, 510), "510": [510], "511": [511]}
for name, rows in groups.items():
    print(f"rows {name:10} mean norm {norms[list(rows)].mean():.2f}")

# %% mystnb={"figure": {"name": "fig-learned-norms", "caption": "Norms of the 512 rows of MiniLM's position table. Row 0, of norm 2.36, is beyond the frame."}, "image": {"alt": "A curve near 0.42 up to row 126, a single spike to 0.69 at row 127, then a level of 0.48, and a steep rise to 0.97 at the last row."}}
plots.lines(range(512), {"MiniLM": norms}, xlabel="row", ylabel="norm of the row",
            ylim=(0.3, 1.05))

# %% [markdown]
# The table tells its history.
# Row 0 is always under [CLS], and unlike all others.
# In {numref}`fig-learned-norms` row 127 is a scar.
# The model card says that sentences were cut at 128 tokens in training; then the last token, [SEP], stands at 127.
# A text cut at 512 has it at 511, where the next peak is.
# Rows after 127, which fewer texts read, are not weaker but longer.

# %% [markdown]
# ### How alike are neighbours?
#
# It is often said that adjacent rows are nearly parallel and distant ones nearly orthogonal.
# We take the cosines of all pairs at one distance, their mean and their spread.
# Beside MiniLM stand sinusoids of the same width, and random rows.

# %%
def cosines(table):
    unit = torch.nn.functional.normalize(table, dim=1)
    return unit @ unit.T

def at_distance(table, distance):
    values = torch.diagonal(cosines(table), distance)
    return values.mean().item(), values.std().item()

rng = torch.Generator().manual_seed(0)
tables = {"MiniLM": T, "sinusoidal": pe_lab.sinusoidal(512, 384, dtype=torch.float64),
          "random": torch.randn(512, 384, generator=rng).double()}

# %%
apart = (1, 3, 6, 16, 64, 256)
print(" " * 10, "".join(f"{d:12}" for d in apart))
for name, table in tables.items():
    pairs = (at_distance(table, d) for d in apart)
    print(f"{name:11}", "".join(f" {m:5.2f} ± {s:.2f}" for m, s in pairs))

# %% mystnb={"figure": {"name": "fig-learned-cosine", "caption": "Cosine of two rows against their distance: mean over all pairs, and one standard deviation on both sides. MiniLM's table is no monotone measure of distance."}, "image": {"alt": "The curve of sinusoids falls slowly from 0.97. The curve of MiniLM falls to 0.44 at distance 3, rises to 0.69 at 6, and goes on in waves around a slowly falling mean with a wide band. Random rows stay at zero."}}
distances = range(1, 65)
pairs = {name: torch.tensor([at_distance(table, d) for d in distances])
         for name, table in tables.items()}
plots.lines(
    distances,
    {name: pair[:, 0] for name, pair in pairs.items()},
    bands={n: (p[:, 0] - p[:, 1], p[:, 0] + p[:, 1]) for n, p in pairs.items()},
    colors={"MiniLM": "position", "sinusoidal": "content", "random": "other"},
    xlabel="distance of two positions", ylabel="cosine of their rows",
)

# %% [markdown]
# Neighbours at 0.85, an angle of 32 degrees, are clearly alike, but less so than sinusoids.
# Then {numref}`fig-learned-cosine` shows a wave: distance 6 is closer than distance 3.
# Far rows are nearly orthogonal on average only: single pairs spread more than three times as far as random rows do.
# All rows share a mean, which lifts every cosine; without it:

# %%
from math import acos, degrees

print("angle of neighbours:", round(degrees(acos(at_distance(T, 1)[0]))))
centred = {name: table - table.mean(dim=0) for name, table in tables.items()}
for name in ("MiniLM", "sinusoidal"):
    pairs = (at_distance(centred[name], d) for d in apart)
    print(f"{name:11}", "".join(f" {m:5.2f} ± {s:.2f}" for m, s in pairs))

# %% [markdown]
# ### How many dimensions?
#
# Principal components answer: directions in order of the variance that the rows have along them, with shares $s_1 \ge s_2 \ge \dots$ of the whole.
# How many of them matter?
# A measure without a threshold is the exponential of their entropy (after {cite:t}`roy2007`, who take singular values for $s$):
#
# $$
# \text{effective rank} = \exp\Bigl(-\sum_i s_i \ln s_i\Bigr).
# $$ (eq-effective-rank)
#
# Predict: more for MiniLM's learned rows, or for sinusoids?

# %%
for name, table in centred.items():
    shares = torch.linalg.svdvals(table).square()
    shares = shares / shares.sum()
    rank = exp(-torch.special.xlogy(shares, shares).sum())
    enough = (shares.cumsum(0) < 0.9).sum().item() + 1
    print(f"{name:11} effective rank {rank:5.1f}, 90 % of the variance in {enough}")

# %% [markdown]
# The learned table is the *simpler* one: 14 dimensions against 52, of 384.
# The model was free to learn any code for positions, and it chose a frugal one.
# What are its dimensions?
# We plot components against position.

# %% mystnb={"figure": {"name": "fig-learned-pca", "caption": "Six principal components of MiniLM's table along positions 1 to 128. Waves again, fast ones and slow ones."}, "image": {"alt": "Six panels. Component 1 is a fast wave of some twenty turns, the others are slow waves, some with faster ripples on them. Several have a kink near position 127."}}
left, scales, _ = torch.linalg.svd(T - T.mean(dim=0), full_matrices=False)
components = left * scales
with plots.figure(3, 2, size=(6.8, 3.8), sharex=True) as (fig, axes):
    for ax, number in zip(axes, (0, 2, 3, 6, 8, 10), strict=True):
        ax.plot(components[1:129, number], color=plots.color("position"), lw=1)
        ax.set(title=f"component {number + 1}", yticks=[])
    for ax in axes[3:]:
        ax.set_xlabel("position")
fig

# %% [markdown]
# {numref}`fig-learned-pca` shows waves, though nobody asked for them.
# A Fourier transform along the positions, summed over all channels, says which.
# We leave out the special rows, and taper both ends.

# %%
def power(table):  # share of each number of turns within rows 1 … 509
    rows = table[1:510] - table[1:510].mean(dim=0)
    taper = torch.hann_window(len(rows), periodic=False, dtype=rows.dtype)
    power = torch.fft.rfft(rows * taper[:, None], dim=0).abs().square().sum(dim=1)
    return power / power.sum()

found = power(T)
peaks = [k for k in range(1, 254) if found[k] > max(found[k - 1], found[k + 1], 0.02)]
print("turns within 509 rows:", peaks)
print("periods in positions: ", [round(509 / k, 1) for k in peaks])

# %% mystnb={"figure": {"name": "fig-learned-spectrum", "caption": "Power of the columns by the number of turns within 509 rows. MiniLM's table has peaks at 1, 3, 9, about 29 and about 85: a ladder with a step of three. The ladder of sinusoids has fine steps and ends at one radian per position."}, "image": {"alt": "On a logarithmic axis of turns, MiniLM's power has five separate humps at even distances, while that of sinusoids falls smoothly to zero near 81 turns."}}
turns = range(1, 200)
curves = {name: power(tables[name])[1:200] for name in ("MiniLM", "sinusoidal")}
fig = plots.lines(turns, curves, colors={"sinusoidal": "content"}, xlog=True,
                  xlabel="turns within 509 positions", ylabel="share of the power")
plots.plain_ticks(fig.axes[0])
fig

# %% [markdown]
# {numref}`fig-learned-spectrum` has five groups of waves, each about three times as fast as the one before:
# a geometric ladder, as in {ref}`ch-tables`, with wider steps.
# That much is true when sinusoids are said to encode an objective structure: this network, too, has clocks of very different speeds.
# Their number differs, and so does the far field.

# %% [markdown]
# {prf:ref}`thm-shift` gives sinusoids one matrix per offset $k$, with $PE(p + k) = M_k\,PE(p)$.
# A learned table is said to have none.
# We fit one to three of four positions, in the space of 12 components, and try it on the rest.
# (Sinusoids have more components than that, so what is exact for them is cut here.)

# %%
def shift_error(table, offset, width=12):  # 0: exact; 1: no better than the mean
    rows = table[1:510] - table[1:510].mean(dim=0)
    left, scales, _ = torch.linalg.svd(rows, full_matrices=False)
    low = (left * scales)[:, :width]
    here, there = low[:-offset], low[offset:]
    test = torch.arange(len(here)) % 4 == 0
    fitted = torch.linalg.lstsq(here[~test], there[~test]).solution
    return ((here[test] @ fitted - there[test]).norm() / there[test].norm()).item()

for name, table in tables.items():
    errors = (f"+{k}: {shift_error(table, k):.2f}" for k in (1, 3, 10, 30))
    print(f"{name:11}", "   ".join(errors))

# %% [markdown]
# A step of one is learned well, one of thirty badly, and random rows have none.
# What the formula guarantees is here approximately learned, for near positions.
#
# ## What the model makes of it
#
# What is the table good for? First the extreme: zeros.
#
# ````{prf:proposition} Equal rows are no rows
# :label: prop-blind
#
# Let position enter an encoder through its table alone, and let all rows of the table be equal, zero or not.
# Then the mean over the last layer's states is the same for every order of the tokens.
# ````
#
# ````{prf:proof}
# The input of the first layer is $x_p = e_p + c$ with one vector $c$, a function of the token alone; a LayerNorm on it is one, too.
# By {prf:ref}`lem-compose` and {prf:ref}`thm-equivariant` each layer commutes with permutations, and so does the stack.
# {prf:ref}`cor-bag` does the rest.
# ````
#
# Orders that leave [CLS] in front and [SEP] at the end are among them.
# We check a small encoder, with random weights, in float64.

# %%
pe_lab.seed(0)
rows = pe_lab.Learned(16, 32, std=1.0)
model = pe_lab.Transformer(50, 32, 4, 3, kind="encoder", encoding=rows, norm="post")
model = model.double().eval()
ids, order = torch.tensor([[1, 7, 30, 12, 7, 2]]), torch.tensor([0, 3, 4, 2, 1, 5])

@torch.no_grad()
def moved():  # how far the mean state moves in another order
    here, there = model.hidden(ids).mean(dim=1), model.hidden(ids[:, order]).mean(dim=1)
    return (here - there).abs().max().item()

print("rows as drawn, above 0.01:  ", moved() > 0.01)
for name, value in [("all rows zero", 0.0), ("all rows alike", 3.0)]:
    torch.nn.init.constant_(rows.weight, value)
    print(f"{name + ', below 1e-12:':28}", moved() < 1e-12)

# %% [markdown]
# ### The same in MiniLM
#
# The laboratory has put four tables into the released model: its own; zeros; its mean row everywhere; and its first 128 rows permuted.
# It embedded 100 verses, the same verses with shuffled words, and pairs such as *dog bites man* and *man bites dog*.
# Three seeds draw verses and orders.
# Before you run the cell: how far apart are *dog bites man* and *man bites dog* in the intact model?

# %%
minilm = lab.load("minilm")
columns = {"dog": "man bites dog", "pairs": "8 pairs", "shuffled": "shuffled",
           "unrelated": "unrelated", "intact": "to intact"}
print(" " * 9, "".join(f"{column:>15}" for column in columns.values()))
for variant in minilm.variants:
    found = (lab.mean_spread(minilm.final(variant, name)) for name in columns)
    print(f"{variant:9}", "".join(f"{m:7.3f} ± {s:.3f}" for m, s in found))
worst = max(minilm.final(v, "shuffled_apart").max() for v in ("zeroed", "mean-row"))
print("zeroed and mean-row, shuffled: embeddings equal to 1e-6:", worst < 1e-6)

# %% [markdown]
# Without its table the model is *exactly* blind, as {prf:ref}`prop-blind` says.
# With its table it is nearly blind: a shuffled verse keeps a cosine of 0.881, where unrelated verses have 0.282,
# and *dog bites man* is a good match for *man bites dog*.
# Yet zeros move a verse's embedding to a cosine of 0.702 with what it was.
# The model *needs* its rows, and makes little of order.
# The pairs, one by one:

# %%
from pe_lab.lab.experiments.minilm import PAIRS

_, each = minilm.profile("intact", "pairs")
for cosine, (one, other) in zip(each.mean(0), PAIRS, strict=True):
    print(f"{cosine:.3f}   {one} / {other}")

# %% [markdown]
# ### Who reads the rows?
#
# Some heads look at the neighbour.
# For each of the 72 heads, six layers of twelve, we have the share of attention that goes to the token before, as a mean over all tokens between two words.
# With 30 tokens and no preference it would be a few per cent.

# %% mystnb={"figure": {"name": "fig-learned-heads", "caption": "Share of attention on the previous token, by layer and head, with MiniLM's own table and with zeros. Mean of three seeds."}, "image": {"alt": "Two heat maps of six rows and twelve columns. In the first, one cell of layer 0 is dark, near 1, and three others in layers 0 to 2 are visible. In the second all cells are pale."}}
def heads(variant, where):
    return minilm.profile(variant, f"attention/{where}")[1].mean(0).reshape(6, 12)

plots.heatmaps([heads("intact", "previous"), heads("zeroed", "previous")],
               titles=["own table", "zeros"], xlabel="head", ylabel="layer", limit=1.0)

# %%
for where in ("previous", "next"):
    head = heads("intact", where).argmax()
    print(f"{where}: layer {head // 12}, head {head % 12}")
    for variant in minilm.variants:
        shares = minilm.profile(variant, f"attention/{where}")[1][:, head]
        mean, spread = lab.mean_spread(shares)
        print(f"   {variant:9} {mean:6.1%} ± {spread:.1%}")

# %% [markdown]
# Head 2 of the first layer does nothing but look one token back: 99.9 % of its attention.
# It needs no words for that, and without rows it is lost, at 4.8 %.
# With permuted rows, what it used to find next door is somewhere else.
# Here the table pays: {numref}`fig-learned-heads` has a few heads that find a neighbour, the strongest in layers 0 to 2, and none of them is left with zeros.

# %% [markdown]
# ## Compare with real code
#
# Some families leave rows free below position 0.
# OPT and BART leave two; RoBERTa counts from the row after that of the padding.
# No key of the config says so; `pe_lab.hf` knows the families.

# %%
families = {
    "bert": {"hidden_size": 768, "max_position_embeddings": 512},
    "opt": {"hidden_size": 768, "max_position_embeddings": 2048},
    "roberta": {"hidden_size": 768, "max_position_embeddings": 514, "pad_token_id": 1},
}
for family, config in families.items():
    read = pe_lab.hf.from_config({"model_type": family, **config}).encoding
    print(f"{family:8} {read}, {len(read.weight)} rows")

# %% [markdown]
# OPT's 2048 positions take 2050 rows, and RoBERTa's 514 rows hold 512 positions: a text of 513 tokens fails there, too.
# Ids come from the padding mask, not from the place in the tensor, so that padding on the left changes nothing.

# %%
tokens = torch.tensor([[0, 5, 6, 2, 1, 1], [1, 1, 0, 5, 6, 2]])  # 1 is padding
mask = tokens != 1
places = pe_lab.positions.from_mask(mask).masked_fill(~mask, -1)
print("positions:", places.tolist())
print("rows:     ", (places + 2).tolist())

# %% [markdown]
# `lab.minilm.load()` builds all of MiniLM of this book's parts, once `pe-lab fetch minilm` has fetched it.
# A test holds it against the library transformers.
#
# ## Common mistakes
#
# **The offset forgotten.** All still runs, and every token reads the row of another place.
# **A negative index.** `nn.Embedding` refuses −1, while `weight[-1]` is the last row.
# **Reserved rows resampled.** They are no places, nor is the row of [CLS] in a vision transformer; they have to be kept.

# %%
rows = torch.arange(6.0)[:, None]  # row r contains r
numbered = pe_lab.Learned(4, 1, offset=2)
numbered.load_state_dict({"weight": rows})
place = torch.arange(3)
print("with the offset: ", numbered.table(place).flatten().tolist())
print("offset forgotten:", rows[place].flatten().tolist())
print("counted from -1: ", rows[place - 1].flatten().tolist())
right, wrong = numbered.resample(7).weight, pe_lab.resample_rows(rows, 9)
for name, found in [("2 kept, 4 become 7:", right), ("6 become 9:", wrong)]:
    print(f"{name:20}", [round(r, 2) for r in found.flatten().tolist()])

# %% [markdown]
# **An image resampled as a line.** Its cells are in raster order: after the end of one line comes the start of the next.
# {cite:t}`dosovitskiy2021` resample in two dimensions.
# We test with a table that contains its own coordinates, and make 5 × 5 cells of 3 × 3.

# %%
cells = pe_lab.positions.grid(3, 3).double()  # (row, column) of each cell
wanted = (pe_lab.positions.grid(5, 5).double() + 0.5) * 3 / 5 - 0.5
in_plane = pe_lab.resample_grid(cells, (3, 3), (5, 5))
in_line = pe_lab.resample_rows(cells, 25)
for name, found in [("in the plane:", in_plane), ("in a line:", in_line)]:
    print(f"{name:13} off by {(found - wanted).abs().mean():.2f} cells on average")

# %% [markdown]
# ## Exercises
#
# Each stub runs as it is.
# Replace the dots, run the cell, and `check` names the kind of mistake if there is one.
#
# `````{exercise} Who reads row p? ★
# :label: ex-08-rows
#
# `lengths` (B,) are the numbers of tokens of the texts in a batch; each text counts its positions from 0.
# Write `reads(lengths, rows)`: how many tokens read each row of a table of `rows` rows, as (rows,) whole numbers.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# A text of 3 tokens reads the rows 0, 1 and 2, once each.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# So row $p$ is read once by every text that is longer than $p$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Compare `lengths[:, None]` with `torch.arange(rows)`, and sum over texts.
# ````
# `````

# %% tags=["exercise"]
def reads(lengths, rows):
    """How many tokens read each row."""
    ...


pe_lab.check("08-rows", reads)
# %% [markdown]
# ````{solution} ex-08-rows
# :class: dropdown
#
# ```python
# def reads(lengths, rows):
#     """How many tokens read each row."""
#     return (lengths[:, None] > torch.arange(rows)).sum(dim=0)
#
#
# pe_lab.check("08-rows", reads)
# ```
# ````

# %% [markdown]
# `````{exercise} Three ways past the end ★★
# :label: ex-08-past
#
# A table has `rows` trained rows, and a text has `length` positions, of which `positions` (L,) are asked for.
# Write `places(positions, rows, length)`: the places at which they are read, clamped, wrapped and resampled, as (3, L).
#
# ````{admonition} Hint 1
# :class: dropdown hint
# The last row of the table is row `rows - 1`.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# {eq}`eq-resample` has the place $p'$. The last position of the text is read at the last row.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `torch.stack` of `p.clamp(max=…)`, `p % …` and `p * … / …`, all of one float dtype.
# ````
# `````

# %% tags=["exercise"]
def places(positions, rows, length):
    """Clamped, wrapped, resampled."""
    ...


pe_lab.check("08-past", places)
# %% [markdown]
# ````{solution} ex-08-past
# :class: dropdown
#
# ```python
# def places(positions, rows, length):
#     """Clamped, wrapped, resampled."""
#     p = positions.double()
#     stretched = p * (rows - 1) / (length - 1)
#     return torch.stack((p.clamp(max=rows - 1), p % rows, stretched))
#
#
# pe_lab.check("08-past", places)
# ```
# ````

# %% [markdown]
# `````{exercise} Count like RoBERTa ★★
# :label: ex-08-roberta
#
# `tokens` (B, L) are token ids, and `pad` is the id of the padding, which may stand on either side.
# Write `rows_of(tokens, pad)`: the row of the table that each token reads. Real tokens count from row `pad + 1`, padding reads row `pad`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# The third real token reads row `pad + 3`, wherever it stands.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# `cumsum` over a mask of zeros and ones counts real tokens. What does it give at a pad?
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Multiply by the mask after counting, and add `pad`.
# ````
# `````

# %% tags=["exercise"]
def rows_of(tokens, pad):
    """pad + 1, pad + 2, … for real tokens, pad for padding."""
    ...


pe_lab.check("08-roberta", rows_of)
# %% [markdown]
# ````{solution} ex-08-roberta
# :class: dropdown
#
# ```python
# def rows_of(tokens, pad):
#     """pad + 1, pad + 2, … for real tokens, pad for padding."""
#     real = (tokens != pad).long()
#     return real.cumsum(dim=1) * real + pad
#
#
# pe_lab.check("08-roberta", rows_of)
# ```
# ````

# %% [markdown]
# `````{exercise} Effective rank ★★
# :label: ex-08-rank
#
# Write `effective_rank(table)`, as {eq}`eq-effective-rank` has it: $s_i$ are the shares of variance of the principal components of the rows.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Subtract the mean row first. `torch.linalg.svdvals` gives singular values.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The variance along a component is the square of its singular value, up to a common factor.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `torch.special.xlogy(s, s)` is $s \ln s$, and 0 where $s$ is 0.
# ````
# `````

# %% tags=["exercise"]
def effective_rank(table):
    """The exponential of the entropy of the shares of variance."""
    ...


pe_lab.check("08-rank", effective_rank)
# %% [markdown]
# ````{solution} ex-08-rank
# :class: dropdown
#
# ```python
# def effective_rank(table):
#     """The exponential of the entropy of the shares of variance."""
#     shares = torch.linalg.svdvals(table - table.mean(dim=0)).square()
#     shares = shares / shares.sum()
#     return (-torch.special.xlogy(shares, shares).sum()).exp()
#
#
# pe_lab.check("08-rank", effective_rank)
# ```
# ````

# %% [markdown]
# `````{exercise} Is it blind? ★★★
# :label: ex-08-blind
#
# `encode` maps token ids (B, L) to states (B, L, d); `order` (L,) is a permutation of places.
# Write `gap(encode, ids, order)`: the largest entry by which the *mean state of a text* differs when its tokens come in the other order.
# Zero for all orders means blind.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# The encoder has to read the shuffled tokens; shuffling its states would tell nothing.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Single states differ even in a blind encoder, since another token stands there. Their mean over the text does not.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `encode(ids).mean(dim=1)` against `encode(ids[:, order]).mean(dim=1)`.
# ````
# `````

# %% tags=["exercise"]
def gap(encode, ids, order):
    """How far the mean state moves when tokens change places."""
    ...


pe_lab.check("08-blind", gap)
# %% [markdown]
# ````{solution} ex-08-blind
# :class: dropdown
#
# ```python
# def gap(encode, ids, order):
#     """How far the mean state moves when tokens change places."""
#     here, there = encode(ids).mean(dim=1), encode(ids[:, order]).mean(dim=1)
#     return (here - there).abs().max()
#
#
# pe_lab.check("08-blind", gap)
# ```
# ````

# %% [markdown]
# ## Quiz
#
# 1. You enlarge a table from 512 to 2048 rows and fine-tune on texts of 512 tokens with AdamW. The new rows:
#    (a) stay as they were drawn; (b) shrink a little, all alike; (c) learn from their neighbours.
#
# ````{admonition} Answer 1
# :class: dropdown
# **b.** {prf:ref}`prop-unread`. Not a: that is Adam without decay. Not c: nothing in a table ties a row to the next one.
# ````
#
# 2. Resampling a table works well, before any tuning, if (a) its neighbouring rows are alike; (b) it has many dimensions; (c) the texts are short.
#
# ````{admonition} Answer 2
# :class: dropdown
# **a.** A mixture of two rows is then a row that the model knows. Not b: our random rows have most dimensions and suffer most.
# Not c: at the trained length it changes nothing, and beyond it moves every place.
# ````
#
# 3. You replace all rows of an encoder's table by their mean. A mean-pooled embedding then is (a) unchanged; (b) blind to order; (c) noise.
#
# ````{admonition} Answer 3
# :class: dropdown
# **b.** {prf:ref}`prop-blind`. Not a: in MiniLM the cosine with the intact embedding is well below 1. Not c: unrelated verses are still told apart.
# ````
#
# 4. RoBERTa's config says `max_position_embeddings: 514`. The longest text has (a) 514 tokens; (b) 513; (c) 512.
#
# ````{admonition} Answer 4
# :class: dropdown
# **c.** Rows 0 and 1 are no positions. Not a: that is the number of rows. Not b: the row of the padding and all rows below it are reserved.
# ````

# %% [markdown]
# ## Take-away
#
# - Inside its length a table can be anything, a formula too. Beyond it there is nothing: an error is the honest answer.
# - Unread rows only shrink. Our models with rows from $N(0, 1)$ failed within one character of the end, whichever row they read.
# - Resampling needs neighbours that are alike: start rows small. Brief tuning mends some of the rest.
# - MiniLM's table is a dozen slow and fast waves. Its model needs them, and yet makes little of the order of words.
#
# {numref}`fig-learned-smooth` shows one architecture and two starts.

# %% mystnb={"figure": {"name": "fig-learned-smooth", "caption": "Perplexity against length for two tables that are equally good at the trained length of 32, and differ in where their rows started. Mean and range over three seeds."}, "image": {"alt": "Two panels with four curves each. In the first, rows from a normal distribution of standard deviation 1, all climb steeply. In the second, from 0.02, resampling climbs least and clamping comes next."}}
with plots.figure(2, size=(6.8, 3.4), sharey=True) as (fig, axes):
    starts = {"from N(0, 1)": "learned", "from N(0, 0.02²)": "learned-small"}
    for ax, (title, scheme) in zip(axes, starts.items(), strict=True):
        for way, metric in ways.items():
            at, values = panorama.profile(scheme, f"perplexity/{metric}")
            ax.plot(at, values.mean(0), "o-", label=way)
            ax.fill_between(at, values.min(0), values.max(0), alpha=0.2)
        ax.set(title=title, xscale="log", xlabel="length", ylabel="perplexity")
        ax.set_xticks(at, at)
        ax.minorticks_off()
    plots.label_ends(axes[1])
fig

# %% [markdown]
# ## Further reading
#
# - {cite:t}`gehring2017`, section 3.1: learned positions, before the Transformer.
# - {cite:t}`devlin2019`, section 3 and appendix A.2: what BERT adds up, and how its rows were trained.
# - {cite:t}`wang2020`: what the tables of several released models have learned, and what they are good for.
# - {cite:t}`wennberg2021`: released tables are nearly translation invariant, and more so the longer they train.
# - {cite:t}`sinha2021`: how little masked language models suffer when word order is destroyed in pre-training.
# - {cite:t}`roy2007`: the effective rank, its properties and its geometry.

# %% tags=["nbval-ignore-output"] reason="versions and processors differ from machine to machine"
pe_lab.provenance()
