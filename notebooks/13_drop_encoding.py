# %% [markdown]
# (ch-nope)=
# # Drop the encoding
#
# :::{div} strip
# 50 minutes to read · under 30 s of CPU · you need {ref}`ch-break`; {ref}`ch-short-long` helps.
# :::
#
# **You will be able to**
#
# - build a head that counts, and read it ({ref}`ex-13-invert`);
# - say which models can know where they stand, and what an anchor adds ({ref}`ex-13-who`);
# - compute how far a count goes in sixteen bits ({ref}`ex-13-bits`);
# - turn a symmetry into a bound on what any model with it can do ({ref}`ex-13-orbits`);
# - probe hidden states for position, and spot a probe that leaks ({ref}`ex-13-ridge`, {ref}`ex-13-honest`).

# %% [markdown]
# ## A model that was told nothing
#
# {ref}`ch-short-long` trained eight small decoders to predict the next character, each with another encoding.
# One of them has none: no table, no rotation, no bias. It is called NoPE.
# Predict its perplexity: is it near that of its neighbours, or near that of a guess by the frequencies of letters?

# %%
from math import exp

import torch
import pe_lab
from pe_lab import lab, plots

torch.set_num_threads(1)
panorama = lab.load("panorama")

# %%
def perplexity(variant, length=32, way="plain"):
    lengths, values = panorama.profile(variant, f"perplexity/{way}")
    mean, spread = lab.mean_spread(values[:, lengths.tolist().index(length)])
    return f"{mean:.2f} ± {spread:.2f}"

print(f"frequencies alone: {exp(panorama.final('none', 'guess')[0]):.2f}")
for variant in ("none", "sinusoidal", "rope"):
    print(f"{variant:11}", perplexity(variant))

# %% [markdown]
# 6.70 is worse than 5.40 and 4.99, and far from 20.03.
# A model with all doors shut has learned much about the order of letters.
# Where does it get the order from?
# And what can it never know?

# %% [markdown]
# ## Try it
#
# One head gives every token that it sees the same weight.
# The first token is marked with the value 1, all others have 0.
# Move the place that looks, then switch the mask off.
# Switch it on again, and take some hundred tokens and bfloat16.
# What makes the place impossible to read, and what only blurs it?

# %%
pe_lab.explore.CountingHead()

# %% [markdown]
# ## Without a mask: nothing
#
# By {prf:ref}`thm-equivariant` attention without mask and position is permutation equivariant: shuffle the tokens, and the outputs are shuffled alike.
# Other models keep a part of this symmetry.
# We try three orders of sixteen tokens: two neighbours exchanged, all reversed, and all moved by one place, the last one to the front.
# Which of these only carry the outputs along? Predict the row of ALiBi, with $-|m - n|$ as its bias.

# %%
from pe_lab.properties import permutation_error

def layer(encoding=None, causal=False, table=0):  # two heads, random weights
    pe_lab.seed(0)
    attend = pe_lab.MultiHeadAttention(16, 2).double()
    return lambda x: attend(x + table, causal=causal, encoding=encoding)

orders = {"exchanged": torch.tensor([0, 2, 1, *range(3, 16)]),
          "reversed": torch.arange(16).flip(0),
          "moved": torch.arange(16).roll(1)}
tokens = torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(1)).double()

# %%
ring = pe_lab.RoPE(8, scaling=lambda _: torch.pi / 8 * torch.tensor([1.0, 2, 3, 5]))
models = {"no encoding": layer(),
          "ALiBi, |m − n|": layer(pe_lab.ALiBi(2, symmetric=True)),
          "RoPE on a ring": layer(ring),
          "RoPE": layer(pe_lab.RoPE(8)),
          "sinusoids": layer(table=pe_lab.sinusoidal(16, 16, dtype=torch.float64)),
          "causal mask": layer(causal=True)}
for name, f in models.items():
    kept = [permutation_error(f, tokens, order) < 1e-6 for order in orders.values()]
    print(f"{name:15}", dict(zip(orders, kept, strict=True)))

# %% [markdown]
# ALiBi's bias knows how far, and not on which side, so it survives a reversal.
# The ring is RoPE with frequencies that all close after sixteen steps: place 15 is a neighbour of place 0, and there is no edge.
# What does such a symmetry forbid?

# %% [markdown]
# ````{prf:proposition} What a symmetry hides
# :label: prop-hides
#
# Let $f(PX) = P f(X)$ for every $P$ in a set $G$ of permutations of $n$ places, and call two places *alike* if permutations of $G$, one after the other,
# carry one to the other.
# Let the tokens be independent draws from one distribution, except at places that no $P$ in $G$ moves: there they may be anything fixed.
#
# If there are $c$ classes of alike places, a reader of single rows of $f(X)$ is right about their places in a share $c/n$ of cases, or less.
# ````
#
# ````{prf:proof}
# 1. $PX$ has the distribution of $X$, so $f(PX) = P f(X)$ has that of $f(X)$.
# 2. Let row $t$ of $P$ have its one in column $\pi(t)$. Row $t$ of $Pf(X)$ is row $\pi(t)$ of $f(X)$. By 1, rows $t$ and $\pi(t)$ of $f(X)$ have
#    one distribution. So have all rows of a class; let $Y$ be a row with that distribution.
# 3. A reader that says $r(Y)$ is right at place $t$ with probability $\mathbb{P}(r(Y) = t)$. Over the places $t$ of one class these sum to 1 at most,
#    because the reader says one thing at a time.
# 4. Over all places the sum is $c$ at most, and the mean is $c/n$ at most.
# ````

# %% [markdown]
# With sixteen random tokens this gives 1/16 without an encoding, 1/16 on the ring, and 8/16 for the symmetric ALiBi, which cannot tell left from right.
# For plain RoPE it says nothing: the edges of the text break the symmetry.
#
# A marked first token helps nobody without a mask and an encoding: the other fifteen still change places freely.

# %% [markdown]
# ## With a mask: it counts
#
# The last row of the table had no symmetry left.
# Take the dullest causal head there is, with all scores zero, and look at its weights.
# Predict the first column.

# %%
zero = torch.zeros(1, 1, 6, 4)
_, weights = pe_lab.attention(zero, zero, zero, causal=True, return_weights=True)
weights[0, 0].round(decimals=3)

# %% [markdown]
# 1, 0.5, 0.333, 0.25: the first column is a ruler.
# All that is missing is a way to look at this column alone.
#
# ````{prf:proposition} A causal head counts
# :label: prop-count
#
# Let all scores be zero, the value of the first token 1, and all other values 0. The output at place $m$ is $1/(m+1)$ with a causal mask, and $1/n$,
# the same at all $n$ places, without one.
# ````
#
# ````{prf:proof}
# The softmax of equal scores is even: each of the $m + 1$ visible tokens has the weight $1/(m+1)$. The first token is visible from every place, and alone
# has a value; its weight is the output. Without a mask all $n$ tokens are visible from everywhere.
# ````

# %% [markdown]
# Now in the weights of a real layer.
# The embedding has four channels, and channel 0 says "I am the first token".
# Queries and keys are zero, the value copies channel 0, and the output goes to channel 1.
# Everything else in the tokens is random.

# %%
def counting_layer(d_model=4):
    head = pe_lab.MultiHeadAttention(d_model, 1).double().requires_grad_(False)
    for part in (head.w_q, head.w_k, head.w_v, head.w_o):
        part.weight.zero_(), part.bias.zero_()
    head.w_v.weight[0, 0] = head.w_o.weight[1, 0] = 1
    return head

# %%
x = torch.randn(1, 64, 4, generator=torch.Generator().manual_seed(0)).double()
x[..., 0] = torch.eye(64)[0].double()
head = counting_layer()
count = head(x, causal=True)[0, :, 1]
wanted = 1 / torch.arange(1, 65).double()
print("1/(m + 1) below 1e-15:", bool((count - wanted).abs().max() < 1e-15))
print("without the mask:", head(x)[0, :, 1].unique().tolist())

# %% [markdown]
# ### Read it back
#
# $1/(m+1)$ falls from place to place, so $m = 1/y - 1$ can be read from it.
# A feed-forward layer has no division, but it has kinks.
# Through 64 points runs a line with a bend at each, and a bend is one ReLU.
# The cell builds that layer: one unit for each place.

# %%
knots, places = wanted.flip(0), torch.arange(64).double().flip(0)
bends = (places.diff() / knots.diff()).diff(prepend=torch.zeros(1).double())

def read(y):  # 63 hidden units
    return places[0] + torch.relu(y[:, None] - knots[:-1]) @ bends

wrong = (read(count) - torch.arange(64)).abs().max()
print("all 64 places read, error below 1e-9:", bool(wrong < 1e-9))

# %% [markdown]
# One layer of attention and one feed-forward layer: the state of every token now holds its place as a number.
# This is theorem 1 of {cite:t}`kazemnejad2023`: the first layer of a decoder without encoding *can* write absolute positions.
#
# Our reader knows 64 places and no more.
# At a place that it was not made for, it goes on straight where the true curve bends: a counter does not extrapolate by itself.

# %% [markdown]
# ### Absolute first, relative afterwards
#
# One reads that the causal mask supplies *relative* positions.
# What we have is a count from the start, and so an absolute one.
# But the next layer can make relative ones of it: theorem 2 of the same paper says so, and ALiBi shows how.
#
# Its causal bias is $-s(m - n) = s\,n - s\,m$.
# Along a row $m$ is constant, and the softmax ignores constants.
# So a key that says $s\,n$ to a query that says 1 will do.

# %%
q, k, v = torch.zeros(3, 1, 1, 64, 2).double()
_, wanted_weights = pe_lab.attention(
    q, k, v, causal=True, encoding=pe_lab.ALiBi(1, slopes=[0.25]), return_weights=True
)
q[..., 0], k[..., 0] = 2**0.5, 0.25 * read(count)  # attention divides by √2
_, built = pe_lab.attention(q, k, v, causal=True, return_weights=True)
print("ALiBi's weights:", torch.allclose(built, wanted_weights, rtol=0, atol=1e-10))

# %% [markdown]
# Two layers without any encoding, and an ALiBi with slope 1/4 in the second.
# Whether training finds such weights is another question.
# The same paper reports that trained models without encoding attend much like those with T5's bias.

# %% [markdown]
# ## Without a mark
#
# The construction leans on a first token that is like no other.
# What if there is none? Let a decoder read forty equal tokens, in three layers with random weights.
# How many different outputs do you expect? And how do "ab" and "abab" compare, at their last tokens?

# %%
pe_lab.seed(0)
decoder = pe_lab.Transformer(20, 32, 4, 3).double().eval()  # a decoder, no encoding
out = decoder(torch.full((1, 40), 7))[0]
print("40 equal tokens, equal outputs:", bool((out - out[0]).abs().max() < 1e-12))

# %%
from pe_lab.lab.probes import hidden_states

for depth, states in enumerate(hidden_states(decoder, torch.tensor([[3, 5, 3, 5]]))):
    same = bool((states[0, 1] - states[0, 3]).abs().max() < 1e-12)
    print(f"after layer {depth}, ab and abab end alike:", same)

# %% [markdown]
# ````{prf:proposition} What a causal layer cannot count
# :label: prop-no-anchor
#
# Take a decoder without encoding.
#
# (a) If all its tokens are equal, all its states are equal, in every layer.
#
# (b) After one layer, the state at a place depends on its own token and on the *shares* of the tokens up to there, and on nothing else.
# ````
#
# ````{prf:proof}
# (a) Attention gives a mean of values, with weights that sum to 1. If the states are equal, so are the values, and their mean is the same whatever the weights
# and however many there are. The rest of a layer treats each row alike. By induction over layers all states stay equal.
#
# (b) Let kind $a$ occur $c_a$ times among the $m + 1$ visible tokens, with the score $s_a$ against the query and the value $v_a$.
# The output is $\sum_a c_a e^{s_a} v_a / \sum_a c_a e^{s_a}$, which stays as it is if all $c_a$ are divided by $m + 1$.
# The query and the residual connection bring in the token itself.
# ````

# %% [markdown]
# "ab" and "abab" have the same shares, so one layer confuses them.
# The second layer reads states that have seen other shares on the way, and does not.
#
# Equal tokens are the worst case.
# Where tokens differ, each is a mark of its own: if its kind has not occurred before, its share of the mean is $1/(m+1)$.

# %%
rng = torch.Generator().manual_seed(0)
kinds = torch.randint(50, (2000, 16), generator=rng)  # 2000 texts of random tokens
seen = torch.nn.functional.one_hot(kinds, 50).double().cumsum(dim=1)
own = seen.gather(2, kinds[..., None])[..., 0] / torch.arange(1, 17)  # its share
right = (1 / own - 1).round() == torch.arange(16)
print(f"place read from a token's own share: {right.double().mean():.0%} right")

# %% [markdown]
# 86 % of the places, by a rule that takes its own token for new, with a channel for each of fifty kinds.
# We will see how much of it a small trained model gets.
#
# ## How far can it count?
#
# Neighbouring outputs $1/(m+1)$ and $1/(m+2)$ come closer and closer, and a number format has a spacing.
# In bfloat16, which has 8 significant bits, predict the first place with the same output as the next: in the tens, the hundreds, or the thousands?

# %%
def first_merge(dtype, start=0, count=5000):
    m = torch.arange(start, start + count, dtype=torch.float64)
    kept = (1 / (m + 1)).to(dtype)
    return start + int((kept[1:] == kept[:-1]).nonzero()[0])

print(f"{'':10}2^(p − 1/2)   first merge at place")
for dtype, p, start in [(torch.bfloat16, 8, 0), (torch.float16, 11, 0),
                        (torch.float32, 24, 11_863_000)]:
    print(f"{str(dtype)[6:]:10}{2 ** (p - 0.5):11.0f}   {first_merge(dtype, start):11}")

# %% [markdown]
# ````{prf:proposition} Places that have an output of their own
# :label: prop-merge
#
# Round $1/(m+1)$ to $p$ significant bits, $p \ge 2$. Every place $m \le 2^{p - 1/2} - 2$ has another output than the next.
# ````
#
# ````{prf:proof}
# Let $2^k \le m + 1 < 2^{k+1}$. Then $1/(m+1)$ lies between $2^{-(k+1)}$ and $2^{-k}$, where numbers of $p$ bits are $2^{-(k+p)}$ apart, and below
# not farther. The gap to the next output is $1/((m+1)(m+2))$. Numbers farther apart than the spacing round to different ones,
# so $(m+1)(m+2) < 2^{k+p}$ is enough.
#
# For $k \le p - 2$ it holds, because $(m+1)(m+2) < 2^{2k+2}$. For $k = p - 1$ it holds because $(m+1)(m+2) < (m+2)^2 \le 2^{2p-1}$.
# And $m + 2 \le 2^{p-1/2}$ leaves no larger $k$.
# ````

# %% [markdown]
# $2^{p-1/2}$ is 181 for bfloat16, and the first merge at 189 comes soon after.
# From there on ever more places share an output, and what is read back climbs in stairs.

# %% mystnb={"figure": {"name": "fig-nope-stairs", "caption": "The place that is read back, 1/y − 1, from the output y kept in bfloat16: 96 places from 480 on. The line is what is exact."}, "image": {"alt": "A staircase of green dots around a grey diagonal; each step is up to four places wide."}}
far = torch.arange(480, 576)
kept = (1 / (far + 1).double()).bfloat16().double()
with plots.figure(size=(6.8, 2.9), xlabel="place", ylabel="read back") as (fig, ax):
    ax.plot(far, far, color=plots.color("content"), lw=1)
    ax.plot(far, 1 / kept - 1, ".", color=plots.color("position"))
fig

# %% [markdown]
# {numref}`fig-nope-stairs` is the limit of one number in one state.
# A model has many heads and may count other things with them; but nothing in it counts for free, as a table or a rotation does.
#
# ## A variance that falls
#
# {cite:t}`chi2023` found another trace of the place, in models that nobody has trained.
# A mean of $m + 1$ independent values has the variance $1/(m+1)$ of each.
# So states become *smaller* from place to place.

# %%
draws = torch.randn(2000, 64, 16, generator=rng).double()
means = draws.cumsum(dim=1) / torch.arange(1, 65)[:, None]  # an even causal head
times = means.var(dim=(0, 2)) * torch.arange(1, 65)
print("variance · (m + 1), within 3 % of 1:", bool(((times - 1).abs() < 0.03).all()))

# %% [markdown]
# Can a *linear* reader find the place in such means?
# We fit a weighted sum of the channels to the place by least squares, on half of the sequences, and test it on the other half.
# $R^2$ is the share of the variance that it explains: 1 for a perfect reading, 0 for the mean of all places.
# Predict $R^2$, for the channels and for their squares.

# %%
fit, test = means.chunk(2)
for name, power in [("channels", 1), ("squares", 2)]:
    share, _ = lab.probes.read_places(fit**power, test**power)
    print(f"{name:9} R² = {round(share, 2) + 0.0:.2f}")

# %% [markdown]
# Nothing, and a quarter.
# The mean of each channel is zero at every place, so no weighted sum can tell places apart; its square has the mean $1/(m+1)$.
# A probe that finds nothing has shown that *it* cannot read, and not that nothing is written.
#
# How is it in a Transformer that reads text? The laboratory has measured the first attention's output, over windows of 64 characters.

# %%
at, probed = [0, 1, 3, 7, 15, 31, 63], lab.load("probes")
print(f"{'place':10}", "".join(f"{m:7}" for m in at))
for when in ("untrained", "trained"):
    variance = probed.profile("causal/none", f"variance/{when}")[1].mean(0)
    print(f"{when:10}", "".join(f"{variance[m]:7.2f}" for m in at))
print(f"{'1/(m + 1)':10}", "".join(f"{1 / (m + 1):7.2f}" for m in at))

# %% [markdown]
# It falls, and stops falling: 0.08 and 0.12 at the end, where $1/(m+1)$ has come down to 0.02.
# Weights are not even, each query prefers some letters, and its preference does not average out.

# %% [markdown]
# ## Who can say where it stands?
#
# Theory says what is possible. What do trained models do?
# The laboratory asks one layer of width 32, with two heads: sixteen random tokens of fifty kinds, and each has to name its own place.
# Each scheme is tried with and without a causal mask, and with and without a constant first token, the **anchor**, which is not asked.
# A guess is right in 1/16 of the cases. Predict the row "none".

# %%
anchors = lab.load("anchors")
schemes = ["none", "alibi", "t5", "rope", "shaw", "sinusoidal", "learned"]

def right_share(kind, scheme, start):
    return lab.mean_spread(anchors.final(f"{kind}/{scheme}/{start}", "accuracy"))

print(f"{'':11}{'both ways':>12}{'+ anchor':>16}{'causal':>16}{'+ anchor':>16}")
for scheme in schemes:
    cells = [right_share(kind, scheme, start) for kind in ("both-ways", "causal")
             for start in ("bare", "anchored")]
    print(f"{scheme:11}", "".join(f"{m:9.3f} ± {s:.3f} " for m, s in cells))

# %% mystnb={"figure": {"name": "fig-nope-anchors", "caption": "Share of tokens that name their own place, mean over three seeds, lines from lowest to highest. Grey: bare; green: behind a constant first token. Dotted: a guess."}, "image": {"alt": "Two panels. Without a mask, no encoding and ALiBi stay at the guess without an anchor, T5 a little above and RoPE at one half; the anchor lifts all but no encoding. With a causal mask the anchor lifts no encoding, ALiBi and T5 from one quarter, and RoPE from four tenths, to nearly one. Shaw, sinusoidal and learned are at one everywhere."}}
with plots.figure(2, size=(6.8, 3.3), sharey=True) as (fig, axes):
    for ax, kind in zip(axes, ("both-ways", "causal"), strict=True):
        for start, role, shift in (("bare", "content", -0.12),
                                   ("anchored", "position", 0.12)):
            for row, scheme in enumerate(schemes):
                values = anchors.final(f"{kind}/{scheme}/{start}", "accuracy")
                paint, at = plots.color(role), [row + shift] * 2
                ax.plot([values.min(), values.max()], at, color=paint, lw=2)
                ax.plot(values.mean(), row + shift, "o", color=paint)
        ax.axvline(1 / 16, color="#777777", ls=":")
        ax.set(title=kind.replace("-", " "), xlabel="right", yticks=range(7))
        ax.set_xlim(0, 1.06)
        ax.set_yticklabels(schemes)
    axes[0].invert_yaxis()
fig

# %% [markdown]
# Read {numref}`fig-nope-anchors` row by row.
#
# - **none**: 0.061 and, with the anchor, 0.065, where {prf:ref}`prop-hides` allows 1/16. With the mask 0.247, with mask and anchor 0.987.
# - **alibi**: both ways as blind as none, though half would be allowed. The anchor, on one side only, breaks the mirror: 0.696.
# - **t5**, **rope**: no symmetry forbids anything, and 0.111 and 0.561 are what is learned of the edges.
# - With a mask, ALiBi and T5 do no better than none: they count.

# %% [markdown]
# How do edges tell RoPE its place, if its scores know offsets only?
# A score is shared out over the tokens that are *there*.
# Near an edge some offsets have no token, and all others get more.
# Equal queries and keys show it: the weight of a token on itself varies with its place, and on the ring it does not.

# %%
equal = torch.ones(1, 1, 16, 8).double()
for name, encoding in [("RoPE", pe_lab.RoPE(8)), ("ring", ring)]:
    _, w = pe_lab.attention(equal, equal, equal, encoding=encoding, return_weights=True)
    print(f"{name}: weight on itself at places 0, 4, 7:",
          [round(v, 3) for v in w[0, 0].diagonal()[[0, 4, 7]].tolist()])

# %% [markdown]
# **shaw** is right everywhere, without mask or anchor, though it is as relative as RoPE.
# It adds a learned vector for each offset to the *values*, too.
# Let all scores and values be zero: what is left is the mean of these vectors over the offsets that exist, another one at each place.

# %%
shaw, still = pe_lab.Shaw(8, 16).double(), torch.zeros(1, 1, 16, 8).double()
marks = pe_lab.attention(still, still, still, encoding=shaw)[0, 0].detach()
print("outputs of zero tokens, all sixteen different:",
      bool(torch.pdist(marks).min() > 1e-3))

# %% [markdown]
# Where do the 0.247 of the bare causal model come from?
# The curve of accuracy against place tells.
# It falls as counting makes one expect: shares of 1/2 and 1/3 are easily told apart, 1/10 and 1/11 are not.
# The rule by a token's own share would have got 86 %; with heads of width 16, for fifty kinds, it is not what was learned.

# %% mystnb={"figure": {"name": "fig-nope-where", "caption": "The causal model without encoding: share of right answers at each place, mean and range over three seeds. A reader in doubt has fewer places to confuse with the last one."}, "image": {"alt": "The line without anchor falls from one at place 0 to below one tenth at place 10 and rises at the last place; the line with anchor stays at one, with a dip at place 14."}}
labels = {"causal/none/bare": "bare", "causal/none/anchored": "anchored"}
lab.figures.profiles(
    anchors, "accuracy", variants=list(labels), names=labels, markers=True,
    colors={"bare": "content", "anchored": "position"},
    xlabel="place", ylabel="right", size=(6.8, 3.0),
)

# %% [markdown]
# Behind an anchor the same model is right nearly everywhere ({numref}`fig-nope-where`).
# What {prf:ref}`prop-count` says is possible, training finds, or something as good.
#
# See it live, with fewer steps and one seed.
# Predict the order of the two; the digits depend on the processor.

# %%
quick = lab.run("anchors", size="quick")
bare, anchored = (quick.final(v, "accuracy").item() for v in quick.variants)
print("bare, better than a guess:", bare > 1.5 / 16)
print("anchored, better than bare:", anchored > bare)

# %% [markdown]
# ## Language: worse, and then better
#
# Back to the characters.
# On the 32 that it was trained on, NoPE was the worst of eight.
# {numref}`fig-nope-ratio` shows the others as a ratio to it: below 1 they are better.
# Which of them will be worse than nothing on longer texts?

# %% mystnb={"figure": {"name": "fig-nope-ratio", "caption": "Perplexity divided by that of the model without encoding, same seed, at up to eight times the trained length: mean and range over three seeds. Below 1 an encoding helps, above 1 it is worse than none."}, "image": {"alt": "Seven lines that start at about 0.8 at 32 characters. Sinusoidal and learned rise to above one and one half at 64 and to two at 256; RoPE is just above one at 64 and ends highest; RoPE with base 5, T5, ALiBi and Shaw stay below one."}}
others = {"sinusoidal": "sinusoidal", "learned": "learned", "rope": "RoPE",
          "rope-base5": "RoPE, base 5", "t5": "T5", "alibi": "ALiBi", "shaw": "Shaw"}
roles = ("position", "highlight", "query", "query", "value", "key", "other")
lengths, none = panorama.profile("none", "perplexity/plain")
ratio = {name: panorama.profile(v, "perplexity/plain")[1] / none
         for v, name in others.items()}
fig = plots.lines(
    lengths, {name: r.mean(0) for name, r in ratio.items()},
    bands={name: (r.min(0), r.max(0)) for name, r in ratio.items()},
    colors=dict(zip(ratio, roles, strict=True)),
    dashed=["RoPE, base 5"], markers=True, xlog=True,
    xlabel="characters read", ylabel="perplexity / that of NoPE", size=(6.8, 3.9),
)
fig.axes[0].axhline(1, color="#777777", ls=":")
fig.axes[0].set_xticks(lengths, lengths, minor=False)
fig.axes[0].minorticks_off()
fig

# %%
print(f"{'':12}", "".join(f"{length:>16}" for length in lengths))
for variant in ("none", *others):
    row = "".join(f"{perplexity(variant, n):>16}" for n in lengths)
    print(f"{variant:12}", row)

# %% [markdown]
# Sinusoids and the table are worse than nothing from twice the length on, and so is RoPE, by little at first.
# So it is true here that NoPE reads longer texts better than RoPE: 10.28 against 26.87.
# It is true of the base 10000.
# With base 5, whose waves have all been seen in training, RoPE is ahead at every length, and so are T5, ALiBi and Shaw.

# %% [markdown]
# NoPE itself is not flat: from 6.70 to 10.28.
# A counter that was fitted to 32 places meets places that it does not know.
# "Models manage without, but less reliably than with RoPE" is half of what we see: worse within the trained length, better beyond it, at this size.
# For larger models see {cite:t}`wang2024nope`: NoPE, too, has a limited context length there, and they stretch it by tuning the temperature of heads.

# %% [markdown]
# ## Strings: copy and sort
#
# {cite:t}`kazemnejad2023` tested decoders on tasks such as copying, sorting and addition, up to twice the trained length.
# They compared sinusoids, RoPE, ALiBi, T5's bias and nothing; retellings put learned tables in the place of T5's bias.
# NoPE came first, and the first three they call not well suited.
#
# Ours train on 1 to 8 digits, copied, reversed or sorted, three seeds each.
# To sort one needs no order in the input, only counts. Predict who wins what.

# %%
strings = lab.load("lengths")

def exact(task, scheme):
    values = strings.profile(f"{task}/{scheme}", "exact_match")[1][:, 1:]
    pairs = map(lab.mean_spread, values.T)
    return "".join(f"{m:8.2f} ± {s:.2f}" for m, s in pairs)

print(f"{'digits':19}{'8':>8}{'10':>15}{'12':>15}{'16':>15}")
for task in ("copy", "reverse", "sort"):
    for scheme in ("nope", "alibi", "t5", "rope", "sinusoidal", "learned"):
        print(f"{task:8}{scheme:11}{exact(task, scheme)}")

# %% [markdown]
# What reproduces: on copies of 10 digits NoPE, ALiBi and, barely, T5 carry something over, the others nothing.
# What does not: ALiBi is ahead of NoPE, 0.78 against 0.60; backwards, the two are level.
# Within its 8 digits, NoPE is the weakest of six in both, if by little.
#
# Sorting is another matter: NoPE sorts 16 digits right in 80 % of cases, and the others hardly ever.
# Where places mean nothing, an encoding of places is in the way.

# %% [markdown]
# ## Probe for position
#
# Can the place be read from the states of a language model that was never asked for it?
# {cite:t}`haviv2022` probed decoders without encoding and found an implicit notion of absolute position throughout their layers.
# We do the same with a probe that has no training of its own: **ridge regression**,
#
# $$
# w = \Bigl(\tfrac1n X^\top X + \lambda I\Bigr)^{-1} \tfrac1n X^\top y,
# $$ (eq-ridge)
#
# for centred states $X$ and places $y$.

# %% [markdown]
# The laboratory trains four models on 64 characters: three decoders, and one model that sees both ways and predicts covered characters.
# Probes are fitted on windows of held-out text and tested on as many others, before and after training.
# Text might give its place away, so a control shuffles the characters of each window.
# Predict where $R^2$ will be zero.

# %%
names = {"causal/sinusoidal": "sinusoidal", "causal/none": "none",
         "causal/rope": "RoPE", "both-ways/none": "none, no mask"}

def r2(variant, reader, when, text="shuffled"):  # of the last layer
    shares = probed.profile(variant, f"r2/{reader}/{text}/{when}")[1][:, -1]
    mean, spread = lab.mean_spread(shares)
    return f"{round(mean, 2) + 0.0:9.2f} ± {spread:.2f}"

config = probed.of("causal/none")[0].config
print("steps:", config["recipe"]["steps"], " windows:", config["windows"])
asked = [("untrained", "shuffled"), ("trained", "shuffled"), ("trained", "text")]
for reader in ("linear", "squares"):
    print(f"{reader:14}", "".join(f"{' '.join(a):>20}" for a in asked))
    for variant, name in names.items():
        row = "".join(f"{r2(variant, reader, *a):>20}" for a in asked)
        print(f"{name:14}", row)

# %% mystnb={"figure": {"name": "fig-nope-probes", "caption": "How much of the variance of the place a ridge probe explains on shuffled windows that it was not fitted on, by layer: mean over three seeds. Layer 0 is what enters the first layer. Dashed: before training."}, "image": {"alt": "Two panels. Sinusoidal stays near one. None rises from zero to about one third with a linear probe and to four tenths with squares; untrained it is lower in the first panel and the same in the second. RoPE rises untrained and falls to near zero when trained. Without a mask all is zero."}}
paints = dict(zip(names, ("position", "content", "query", "highlight"), strict=True))
with plots.figure(2, size=(6.8, 3.4), sharey=True) as (fig, axes):
    for ax, reader in zip(axes, ("linear", "squares"), strict=True):
        for variant, name in names.items():
            for when, dash in (("untrained", "--"), ("trained", "-")):
                shares = probed.profile(variant, f"r2/{reader}/shuffled/{when}")[1]
                label = name if dash == "-" and ax is axes[1] else None
                ax.plot(range(4), shares.mean(0), dash, label=label,
                        color=plots.color(paints[variant]))
        ax.set(title=reader, xlabel="layer", xticks=range(4))
    axes[0].set_ylabel("R²")
    plots.label_ends(axes[1])
fig

# %% [markdown]
# The trained models are the solid lines of {numref}`fig-nope-probes`.
#
# - **none, no mask**: zero, in every layer, on text and on shuffled text. {prf:ref}`prop-hides` at work.
# - **none**: nothing enters; of the last layer a weighted sum reads 0.33, and squares help to 0.41.
#   Nearly all of the 0.41 is there *before* training, as {cite:t}`chi2023` make one expect; training makes more of it readable for a weighted sum.
# - **RoPE** starts like none, for it has the mask, too. But training takes the count away, from 0.46 down to 0.05.
#   A likely reason: who has offsets needs no count.
#
# Predict what the probe reads from NoPE, place by place: a diagonal with noise, or something else?

# %% mystnb={"figure": {"name": "fig-nope-read", "caption": "What the probe with squares reads in the last layer, on shuffled windows, averaged over windows; mean and range over three seeds. A perfect reading would lie on the grey line."}, "image": {"alt": "The line of the sinusoidal model follows the diagonal. That of the decoder without encoding rises quickly at first, lies above the diagonal up to about place 36, and levels off near 39. Without a mask the line is level at the middle."}}
readings = {name: probed.profile(v, "read/squares/shuffled/trained")[1]
            for v, name in names.items() if v != "causal/rope"}
fig = plots.lines(
    range(64), {name: values.mean(0) for name, values in readings.items()},
    bands={name: (values.min(0), values.max(0)) for name, values in readings.items()},
    colors={name: paints[v] for v, name in names.items() if name in readings},
    xlabel="place", ylabel="read", size=(6.8, 3.4),
)
fig.axes[0].plot(range(64), range(64), color="#AAAAAA", lw=1, zorder=0)
fig

# %% [markdown]
# It levels off, near 39 in {numref}`fig-nope-read`: the first places are told apart, the later ones hardly.
# So the numbers $1/(m+1)$ crowd together, and so the bare model of {numref}`fig-nope-where` lost count.
# "Position can be decoded without an encoding" is true, and says little.
# Ask for how many places.

# %% [markdown]
# ## When did this begin?
#
# One reads that research on models without encoding began in 2023, or in 2024.
# {cite:t}`irie2019` removed it from deep language models and found them slightly *better*.
# {cite:t}`haviv2022` showed that such models are competitive, and probed them; {cite:t}`kazemnejad2023` and {cite:t}`chi2023` followed.
# "Not optional" is said of encoders with reason.
# Of decoders it has been known to be false since 2019.

# %% [markdown]
# ## Common mistakes
#
# **Counting what does not belong.** The count is over what is *visible*.
# Three pads on the left without a padding mask shift every place by three.
# Two documents, packed without a mask between them, bring a second mark.
# And without the first token there is no mark at all.
# Predict the four lines; the hand-built head reads four tokens.

# %%
def places_read(tokens, mask=None):
    y = head(tokens, causal=True, mask=mask)[0, :, 1]
    return (1 / y - 1).round(decimals=2).tolist()

text, pads = x[:, :4], torch.zeros(1, 3, 4).double()
padded, real = torch.cat((pads, text), dim=1), torch.arange(7) >= 3
print("pads visible:", places_read(padded)[3:])
print("pads masked: ", places_read(padded, real[None, None, None])[3:])
print("packed:      ", places_read(torch.cat((text, text), dim=1))[4:])
print("no mark:     ", places_read(x[:, 1:5]))

# %% [markdown]
# **Position after the last attention.** One reads that an encoding in a middle layer hurts, and in the last layer cannot work.
# What it needs is *one* attention layer behind it.
# The test: exchange two other tokens, and see whether the output at place 3 notices.

# %%
pe_lab.seed(0)
encoder = pe_lab.Transformer(20, 32, 4, 3, kind="encoder").double().eval()
table = pe_lab.sinusoidal(6, 32, dtype=torch.float64)

def add_at(depth, ids):  # the table enters before layer `depth`
    states, places = encoder.embed(ids), torch.arange(6)
    for n, part in enumerate([*encoder.stack.layers, None]):
        states = states + table if n == depth else states
        if part is not None:
            states = part(states, places, pe_lab.NoPE(), None, False, None, None)
    return states[0, 3]

one, other = torch.tensor([[1, 2, 3, 4, 5, 6]]), torch.tensor([[1, 6, 3, 4, 5, 2]])
for depth in range(4):
    gap = (add_at(depth, one) - add_at(depth, other)).abs().max()
    print(f"table before layer {depth}, order noticed:", bool(gap > 1e-6))

# %% [markdown]
# Before the last layer, the order is still noticed; after it, each output knows its place, and nobody's neighbours.
#
# ## Compare with real code
#
# In `pe_lab`, `NoPE` is the base class of all encodings, with its three doors shut; a `Transformer` without `encoding` has it.
# Released models mix.
# The config of SmolLM3 says in which layers queries and keys are rotated, and leaves out every fourth.
# `pe_lab.hf.from_config` reads it.

# %%
smollm3 = {"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16,
           "num_hidden_layers": 8, "no_rope_layer_interval": 4}
reading = pe_lab.hf.from_config(smollm3)
print([type(encoding).__name__ for encoding in reading.per_layer])

# %% [markdown]
# With a causal mask, such a layer is not blind.
# The layers before it have rotated, and their states carry order along; the layer itself looks at content, however far away it is.
#
# ## Exercises
#
# Each stub runs as it is.
# Replace the dots, run the cell, and `check` names the kind of mistake if there is one.

# %% [markdown]
# `````{exercise} Read the counter ★
# :label: ex-13-invert
#
# A causal head with equal scores sees `marked` tokens of value 1 at the start, and zeros after them.
# Write `place(output, marked)`: the place that looks, for outputs from the last marked token on.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# How many tokens does place $m$ see?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The output is (marked tokens) / (tokens seen).
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Solve $y = k/(m+1)$ for $m$.
# ````
# `````

# %% tags=["exercise"]
def place(output, marked):
    """m, from the output marked / (m + 1)."""
    ...


pe_lab.check("13-invert", place)
# %% [markdown]
# ````{solution} ex-13-invert
# :class: dropdown
#
# ```python
# def place(output, marked):
#     """m, from the output marked / (m + 1)."""
#     return marked / output - 1
#
#
# pe_lab.check("13-invert", place)
# ```
# ````

# %% [markdown]
# `````{exercise} Who can know? ★★
# :label: ex-13-who
#
# Five models. In which of them *can* the outputs tell the places in question apart? Give a set of letters.
#
# - A: encoder, no encoding, a marked first token, then random tokens; all places after the first.
# - B: decoder, no encoding, a marked first token, then equal tokens; all places.
# - C: decoder, no encoding, equal tokens; all places.
# - D: encoder, sinusoids added, equal tokens; all places.
# - E: encoder, ALiBi with $-|m-n|$, random tokens; the first place and the last.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# For A and E look for permutations that the model does not notice: {prf:ref}`prop-hides`.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# For B and C: {prf:ref}`prop-count` and {prf:ref}`prop-no-anchor`.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Build them with `pe_lab.Transformer` and random weights, and compare outputs. Two letters are right.
# ````
# `````

# %% tags=["exercise"]
can_know = ...
pe_lab.check("13-who", can_know)
# %% [markdown]
# ````{solution} ex-13-who
# :class: dropdown
#
# ```python
# can_know = {"B", "D"}
# pe_lab.check("13-who", can_know)
# ```
# ````

# %% [markdown]
# `````{exercise} Where sixteen bits lose count ★★
# :label: ex-13-bits
#
# Write `first_shared(dtype)`: the first place $m$ whose output $1/(m+1)$, rounded to `dtype`, is that of place $m + 1$.
# It has to work for `torch.bfloat16` and `torch.float16`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Compute in float64, and round once, with `.to(dtype)`.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# {prf:ref}`prop-merge` says up to where you will find none, and so how far to look.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Compare `kept[1:]` with `kept[:-1]`; `nonzero()[0]` is the first match.
# ````
# `````

# %% tags=["exercise"]
def first_shared(dtype):
    """The first m for which 1/(m + 1) and 1/(m + 2) are one number of the dtype."""
    ...


pe_lab.check("13-bits", first_shared)
# %% [markdown]
# ````{solution} ex-13-bits
# :class: dropdown
#
# ```python
# def first_shared(dtype):
#     """The first m for which 1/(m + 1) and 1/(m + 2) are one number of the dtype."""
#     kept = (1 / torch.arange(1, 5000, dtype=torch.float64)).to(dtype)
#     return int((kept[1:] == kept[:-1]).nonzero()[0])
#
#
# pe_lab.check("13-bits", first_shared)
# ```
# ````

# %% [markdown]
# `````{exercise} The best that a symmetry leaves ★★★
# :label: ex-13-orbits
#
# A model keeps certain `orders`: lists like `[2, 0, 1]`, where new row $t$ is old row `order[t]`.
# Write `best_share(orders)`: the bound $c/n$ of {prf:ref}`prop-hides`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# $c$ is the number of classes of alike places. Every order ties $t$ to `order[t]`.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Ties chain: give each place a label, and let tied places take the smaller of their two labels.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Repeat over all orders $n$ times; then count the labels that are left.
# ````
# `````

# %% tags=["exercise"]
def best_share(orders):
    """Classes of alike places over places."""
    ...


pe_lab.check("13-orbits", best_share)
# %% [markdown]
# ````{solution} ex-13-orbits
# :class: dropdown
#
# ```python
# def best_share(orders):
#     """Classes of alike places over places."""
#     label = list(range(len(orders[0])))
#     for _ in label:
#         for order in orders:
#             for t, source in enumerate(order):
#                 label[t] = label[source] = min(label[t], label[source])
#     return len(set(label)) / len(label)
#
#
# pe_lab.check("13-orbits", best_share)
# ```
# ````

# %% [markdown]
# `````{exercise} A probe in two lines ★★
# :label: ex-13-ridge
#
# `x` is (n, d) and `y` is (n,); both are centred.
# Write `weights(x, y, penalty)`: the $w$ of {eq}`eq-ridge`, which minimises $|y - xw|^2/n + \lambda|w|^2$.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Set the derivative to zero: $-2x^\top(y - xw)/n + 2\lambda w = 0$.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# That is a linear system, $(x^\top x/n + \lambda I)\,w = x^\top y/n$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `torch.linalg.solve(matrix, right_side)`; `torch.eye(d, dtype=x.dtype)` for $I$.
# ````
# `````

# %% tags=["exercise"]
def weights(x, y, penalty):
    """argmin |y − xw|²/n + λ|w|²."""
    ...


pe_lab.check("13-ridge", weights)
# %% [markdown]
# ````{solution} ex-13-ridge
# :class: dropdown
#
# ```python
# def weights(x, y, penalty):
#     """argmin |y − xw|²/n + λ|w|²."""
#     gram = x.T @ x / len(x) + penalty * torch.eye(x.shape[1], dtype=x.dtype)
#     return torch.linalg.solve(gram, x.T @ y / len(x))
#
#
# pe_lab.check("13-ridge", weights)
# ```
# ````

# %% [markdown]
# The next probe claims to read places from pure noise.
# Four windows of 32 random states, 48 channels, and it claims to explain three tenths of the variance.

# %%
def leaky(states):  # (windows, length, channels)
    places = torch.arange(states.shape[1]).double().repeat(len(states))
    rows = states.flatten(0, 1)
    probe = lab.probes.ridge(rows, places)
    return lab.probes.r_squared(probe(rows), places)

noise = torch.randn(4, 32, 48, generator=torch.Generator().manual_seed(0)).double()
print(f"R² on noise: {leaky(noise):.2f}")

# %% [markdown]
# `````{exercise} Mend a probe that leaks ★★★
# :label: ex-13-honest
#
# Write `honest(states)`: fit on the first half of the windows, and give $R^2$ on the second half. The number of windows is even.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# `leaky` tests its probe on rows that the probe was fitted on.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Split windows, and not places: `states.chunk(2)` along the first axis.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `lab.probes.read_places(fit, test)` does it in one call; its first result is $R^2$.
# ````
# `````

# %% tags=["exercise"]
def honest(states):
    """R² on the second half of the windows, fitted on the first."""
    ...


pe_lab.check("13-honest", honest)
# %% [markdown]
# ````{solution} ex-13-honest
# :class: dropdown
#
# ```python
# def honest(states):
#     """R² on the second half of the windows, fitted on the first."""
#     fit, test = states.chunk(2)
#     return lab.probes.read_places(fit, test)[0]
#
#
# pe_lab.check("13-honest", honest)
# ```
# ````

# %% [markdown]
# ## Quiz
#
# 1. An encoder without encoding reads a constant first token, then random ones. What does the anchor change?
#    (a) nothing for the other places; (b) it makes all places known; (c) it makes the neighbour of the anchor known.
#
# ````{admonition} Answer 1
# :class: dropdown
# **a.** All places after it are alike. Not b: that takes a mask. Not c: without order there are no neighbours.
# ````
#
# 2. A decoder without encoding reads "aaaa…". Its outputs are (a) all equal; (b) different, because of the mask; (c) different from the second layer on.
#
# ````{admonition} Answer 2
# :class: dropdown
# **a.** Means of one value. Not b: the mask changes how many are averaged, not what. Not c: equal states stay equal.
# ````

# %% [markdown]
# 3. A linear probe for position gives $R^2 = 0$ on held-out windows. Then (a) the states hold no position; (b) no weighted sum of channels explains it;
#    (c) the model has no mask.
#
# ````{admonition} Answer 3
# :class: dropdown
# **b.** Not a: a variance is position, too, and no weighted sum sees it. Not c: causal means of random values gave 0 as well.
# ````
#
# 4. What does the causal mask supply? (a) relative positions; (b) a count of what is visible; (c) the order of the last two tokens.
#
# ````{admonition} Answer 4
# :class: dropdown
# **b.** And with a mark it is an absolute place. Not a: that takes a second layer. Not c: one layer is blind to the order of what it sees.
# ````

# %% [markdown]
# ## Take-away
#
# - Without a mask and without encoding, no place can be known, anchor or not. A symmetry is a bound before any training.
# - A causal mask counts. With a marked first token it counts exactly, $1/(m+1)$; with equal tokens and no mark, not at all.
# - The count gets coarse: in bfloat16 after 189 places, in trained language models much earlier.
# - NoPE was worst within the trained length, better than base-10000 RoPE beyond it, and by far the best at sorting. It depends on the task.
#
# {numref}`fig-nope-bound` holds six set-ups against what their symmetry allows.

# %% mystnb={"figure": {"name": "fig-nope-bound", "caption": "Sixteen random tokens name their places. Grey: what the symmetry of the set-up allows. Green: what one trained layer does, mean of three seeds."}, "image": {"alt": "Six grey bars with green dots. Encoder without encoding, with and without anchor: bars and dots at one sixteenth. Encoder with symmetric ALiBi: bar at one half, dot at one sixteenth. Encoder with RoPE: bar at one, dot at 0.56. Decoder without encoding: bar at one, dot at 0.25, and with an anchor at 0.99."}}
setups = {"encoder": ("both-ways/none/bare", 1 / 16),
          "encoder + anchor": ("both-ways/none/anchored", 1 / 16),
          "encoder, ALiBi": ("both-ways/alibi/bare", 8 / 16),
          "encoder, RoPE": ("both-ways/rope/bare", 1),
          "decoder": ("causal/none/bare", 1),
          "decoder + anchor": ("causal/none/anchored", 1)}
with plots.figure(size=(6.8, 2.8), xlabel="right") as (fig, ax):
    ax.barh(list(setups), [bound for _, bound in setups.values()], color="#DDDDDD")
    means = [anchors.final(name, "accuracy").mean() for name, _ in setups.values()]
    ax.plot(means, list(setups), "o", color=plots.color("position"))
    ax.invert_yaxis()
fig

# %% [markdown]
# ## Further reading
#
# - {cite:t}`irie2019`: deep language models that do slightly better without.
# - {cite:t}`haviv2022`: comparisons over data sets, sizes and lengths, and probes throughout the network.
# - {cite:t}`kazemnejad2023`: the two theorems on what NoPE can represent, and ten tasks to measure it.
# - {cite:t}`chi2023`: the distribution of states, step by step through a layer that was never trained.
# - {cite:t}`wang2024nope`: where NoPE's context ends, and how to move the end.
# - {cite:t}`zuo2025`: another trace of position, in the likeness of nearby states.
# - {cite:t}`alain2016` and {cite:t}`hewitt2019`: linear probes, and controls that say what a probe learned by itself.

# %% tags=["nbval-ignore-output"] reason="versions and processors differ from machine to machine"
pe_lab.provenance()
