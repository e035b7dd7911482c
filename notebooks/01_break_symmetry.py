# %% [markdown]
# (ch-break)=
# # Break the symmetry
#
# :::{div} strip
# 45 minutes to read · under 15 s of CPU · you need matrix products, and some PyTorch.
# :::
#
# **You will be able to**
#
# - write a permutation as a matrix and self-attention in three lines ({ref}`ex-01-matrix`, {ref}`ex-01-attention`);
# - prove that attention cannot see order, and name two sentences that it confuses ({ref}`ex-01-confuse`);
# - say which masks keep this symmetry and which break it ({ref}`ex-01-mask`);
# - measure the symmetry of any model, without training it ({ref}`ex-01-error`);
# - compute a floor below which no position-free model can get ({ref}`ex-01-floor`).

# %% [markdown]
# ## The cat eats the fish, and the other way round
#
# Three words, each with four random numbers as its embedding, and one attention head with random weights.
# The head reads "cat eats fish".
# Each row of the result is the new vector of a word.
# (`pe_lab.attention` wants four axes: batch, heads, length, width. The two `None` add the first two.)

# %%
import torch
import pe_lab

torch.set_num_threads(1)
pe_lab.seed(0)
words = {word: torch.randn(4).double() for word in ("cat", "eats", "fish")}
w_q, w_k, w_v = torch.randn(3, 4, 4).double()

# %%
def head(x):  # x: (words, 4)
    q, k, v = (t[None, None] for t in (x @ w_q, x @ w_k, x @ w_v))
    return pe_lab.attention(q, k, v)[0, 0]

def read(sentence):
    return head(torch.stack([words[word] for word in sentence.split()]))

read("cat eats fish").round(decimals=3)

# %% [markdown]
# Now the fish eats the cat.
# Before you run the cell, predict the new vector of "cat", in the last row:
# is it nearly the same, rather different, or exactly the same as in the first row above?

# %%
read("fish eats cat").round(decimals=3)

# %% [markdown]
# The same three rows in another order.
# The vector of "cat" does not know who eats whom.
# This is no accident of three words, four channels or random weights.
# In this chapter we prove it, measure it down to the last bit, and find out what breaks it.

# %% [markdown]
# ## Try it
#
# Walk a word of the lower sentence to another place: its column of colours goes along, unchanged.
# The read-out compares the two sides of an equation that we prove below.
# Then turn on the causal mask, turn it off, and add positions.
# Which of the two makes every column depend on its place?

# %%
pe_lab.explore.Shuffle()

# %% [markdown]
# ## A permutation is a matrix
#
# To shuffle the rows of $X$ we choose an `order`: new row $t$ is old row `order[t]`.
# The same is a product $PX$ with a **permutation matrix**: zeros and ones, with a single one in each row and in each column.
# Predict row 0 of $P$ for the order 2, 0, 1.

# %%
order = torch.tensor([2, 0, 1])
P = torch.eye(3).double()[order]
x = torch.stack(list(words.values()))
print(P)
print("P X = X[order]:", torch.equal(P @ x, x[order]))
print("Pᵀ P = I:", torch.equal(P.T @ P, torch.eye(3).double()))

# %% [markdown]
# $P^\top P = I$ says that the transpose puts every row back.
# It holds for every permutation matrix: entry $(j, k)$ of $P^\top P$ multiplies columns $j$ and $k$ of $P$.
# Their ones stand in different rows unless $j = k$.
#
# What does $P^\top$ do on the other side of a matrix?

# %%
A = torch.arange(9.0).reshape(3, 3).double()
print(A @ P.T)
print("A Pᵀ = A[:, order]:", torch.equal(A @ P.T, A[:, order]))

# %% [markdown]
# $A P^\top$ shuffles the *columns* of $A$, so $P A P^\top$ shuffles rows and columns alike.
# Two words will save us many:
#
# ````{prf:definition} Equivariant, invariant
# :label: def-equivariant
#
# A map $f$ from sequences to sequences is **permutation equivariant** if $f(PX) = P f(X)$
# for every $X$ and every permutation matrix $P$: shuffle the input, and the output is shuffled alike.
# It is **permutation invariant** if $f(PX) = f(X)$.
# ````

# %% [markdown]
# ## Four steps
#
# Self-attention without position is
#
# $$
# f(X) = \operatorname{softmax}\!\left(\frac{(XW_Q)(XW_K)^\top}{\sqrt{d_k}}\right) X W_V,
# $$ (eq-attention)
#
# where the softmax acts on each row.
# We send $PX$ through it, one operation at a time, and look where $P$ goes.
#
# First, the projections.
# A matrix on the right mixes channels and leaves rows alone: $(PX)W = P(XW)$.

# %%
print(torch.allclose((P @ x) @ w_q, P @ (x @ w_q), rtol=0, atol=1e-14))

# %% [markdown]
# Second, the scores $S = QK^\top/\sqrt{d_k}$.
# With $PQ$ and $PK$ in the place of $Q$ and $K$ we get $PQ(PK)^\top = P\,(QK^\top)\,P^\top$:
# rows and columns are shuffled.

# %%
q, k, v = x @ w_q, x @ w_k, x @ w_v
S = q @ k.T / 4**0.5
S_shuffled = (P @ q) @ (P @ k).T / 4**0.5
print(torch.allclose(S_shuffled, P @ S @ P.T, rtol=0, atol=1e-14))

# %% [markdown]
# Third, the softmax.
# It treats each row alone, so shuffled rows are no matter.
# Within a row it divides exponentials by their sum, and a sum does not depend on the order of its terms:
# $\operatorname{softmax}(PSP^\top) = P\operatorname{softmax}(S)\,P^\top$.

# %%
A = S.softmax(dim=-1)
print(torch.allclose(S_shuffled.softmax(dim=-1), P @ A @ P.T, rtol=0, atol=1e-14))

# %% [markdown]
# Fourth, the weights meet the shuffled values $PV$.
# Two permutations come together, $(PAP^\top)(PV) = PA\,(P^\top P)\,V$, and cancel.
# What is left is $P\,(AV)$.

# %%
print(torch.allclose((P @ A @ P.T) @ (P @ v), P @ (A @ v), rtol=0, atol=1e-14))

# %% [markdown]
# ````{prf:theorem} Attention is equivariant
# :label: thm-equivariant
#
# The map $f$ of {eq}`eq-attention` satisfies $f(PX) = P f(X)$ for every matrix $X$, every permutation matrix $P$ of fitting size,
# and all weights.
# ````
#
# ````{prf:proof}
# Let $Q = XW_Q$, $K = XW_K$, $V = XW_V$, $S = QK^\top/\sqrt{d_k}$ and $A = \operatorname{softmax}(S)$.
#
# 1. $(PX)W = P(XW)$ because matrix products are associative. So $PX$ has queries $PQ$, keys $PK$ and values $PV$.
# 2. Its scores are $PQ(PK)^\top/\sqrt{d_k} = P\,S\,P^\top$, because $(PK)^\top = K^\top P^\top$.
# 3. Entry $(s, t)$ of $PSP^\top$ is $S_{\pi(s)\pi(t)}$, where row $s$ of $P$ has its one in column $\pi(s)$. Its softmax is
#    $e^{S_{\pi(s)\pi(t)}} / \sum_u e^{S_{\pi(s)\pi(u)}}$. As $u$ runs over all places, so does $\pi(u)$: the sum is the one
#    of row $\pi(s)$ of $S$, and the quotient is $A_{\pi(s)\pi(t)}$. Hence $\operatorname{softmax}(PSP^\top) = PAP^\top$.
# 4. The output is $PAP^\top\,PV = PAV$, because $P^\top P = I$. And $AV = f(X)$.
# ````

# %% [markdown]
# The proof uses nothing about the weights.
# In particular it does not need symmetric scores.
# A widespread explanation says that the confusion comes from $x\cdot y = y\cdot x$.
# The conclusion is right and the reason wrong: the scores are not symmetric at all,
# because queries and keys have weights of their own.

# %%
print("largest |S − Sᵀ|:", round((S - S.T).abs().max().item(), 2))

# %% [markdown]
# ## All 720 of them
#
# A theorem about real numbers is one thing, a computer another.
# Six tokens have $6! = 720$ orders; we run them all, with 16 channels, in float64 and in float32.
# `permutation_error` is $\max |f(PX) - P f(X)|$.
# How large do you expect it to be?

# %%
from itertools import permutations
from pe_lab.properties import permutation_error

def one_head(seed, dtype, width=16):
    rng = torch.Generator().manual_seed(seed)
    weights = torch.randn(3, width, width, generator=rng).to(dtype) / width**0.5
    def f(x):  # (1, L, width)
        return pe_lab.attention(*((x @ w)[:, None] for w in weights))[:, 0]
    return f

orders = [torch.tensor(p) for p in permutations(range(6))]
len(orders)

# %%
errors = {}
for dtype in (torch.float64, torch.float32):
    f = one_head(0, dtype)
    tokens = torch.randn(1, 6, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    errors[dtype] = torch.tensor([permutation_error(f, tokens, p) for p in orders])
print("float64, all below 1e-14:", (errors[torch.float64] < 1e-14).all().item())
worst = errors[torch.float32].max().item()
print("float32, largest between 1e-7 and 2e-6:", 1e-7 < worst < 2e-6)
print("float32, all exactly 0:", (errors[torch.float32] == 0).all().item())
for dtype in errors:
    print(f"spacing of {str(dtype)[6:]} numbers at 1: {torch.finfo(dtype).eps:.0e}")

# %% [markdown]
# {numref}`fig-break-errors` shows the two sets of errors: the theorem holds to the last digits, and only to the last digits.
# It is often said that the shuffled run gives *identical* numbers.
# In float32 it does not, and in float64 it does not either.
# Predict which steps of the proof a computer breaks.

# %% mystnb={"figure": {"name": "fig-break-errors", "caption": "Deviation from f(PX) = P f(X) for all 720 orders of six tokens. The two groups sit at the rounding of their number format. Orders with deviation exactly zero, such as the identity, are left out."}, "image": {"alt": "Two histograms on a logarithmic axis; the float64 errors lie around ten to the minus sixteen to minus fifteen, the float32 errors around ten to the minus seven."}}
from pe_lab import plots

plots.histogram(
    {str(t)[6:]: e[e > 0].log10() for t, e in errors.items()},
    bins=80,
    xlabel="log10 of the largest deviation",
    ylabel="orders",
)

# %% [markdown]
# Sums of rounded numbers depend on the order of their terms.
# Step 3 sums the exponentials of a row, step 4 sums over the values, and a shuffled sentence sums them in another order.
# Three terms are enough to see it.

# %%
a, b, c = torch.tensor([1e8, -1e8, 1.0])
print("(a + b) + c =", ((a + b) + c).item())
print("a + (b + c) =", (a + (b + c)).item())

# %% [markdown]
# So we never ask whether two runs are equal, but whether they differ by more than rounding:
# a few times 2e-16 in float64, a few times 1e-07 in float32, for numbers near 1.
# A broken symmetry will turn out to be larger by a factor of a million.

# %% [markdown]
# ## What pooling leaves
#
# The rows of $f(PX)$ are those of $f(X)$ in another order.
# So the two output matrices differ, and a reader of single rows knows which row belongs to which place.
# But a classifier often takes the mean of all rows, and a mean has no order.
#
# ````{prf:corollary} A pooled encoder sees a bag of words
# :label: cor-bag
#
# If $f$ is equivariant and $g(Y)$ is the mean, the sum or the maximum over the rows of $Y$, then $g(f(PX)) = g(f(X))$.
# ````
#
# ````{prf:proof}
# $g(f(PX)) = g(P f(X))$ by equivariance, and $g(PY) = g(Y)$ because means, sums and maxima do not depend on the order of rows.
# ````
#
# Another classifier reads the row of one special token, as {cite:t}`devlin2019` do.
# It fares no better: wherever that token goes, its row goes along and stays the same.

# %%
cat, fish = read("cat eats fish"), read("fish eats cat")
print("rows differ by     ", round((cat - fish).abs().max().item(), 2))
print("means differ by less than 1e-14:",
      bool((cat.mean(0) - fish.mean(0)).abs().max() < 1e-14))
print("rows of “cat” differ by less than 1e-14:",
      bool((cat[0] - fish[2]).abs().max() < 1e-14))

# %% [markdown]
# Sometimes this is just what one wants.
# A set has no order, and networks for sets are built to be equivariant:
# {cite:t}`zaheer2017` characterise the linear layers that are, without attention, and {cite:t}`lee2019` use attention for it.
# For language it is a defect.

# %% [markdown]
# ## The rest of the Transformer does not help
#
# A Transformer is more than one head.
# It has several heads, residual connections, LayerNorm and feed-forward layers.
# Does one of them notice where a row stands?
# Two rules settle it for all of them.
#
# ````{prf:lemma} Rows alike, one after the other
# :label: lem-compose
#
# (a) If $h$ applies one function to every row, $h$ is equivariant.
# (b) If $f$ and $g$ are equivariant, so are $g \circ f$, $f + g$, and $f$ and $g$ side by side, channel after channel.
# ````
#
# ````{prf:proof}
# (a) Let row $t$ of $P$ have its one in column $\pi(t)$. Row $t$ of $h(PX)$ is the function of row $t$ of $PX$, that is of row $\pi(t)$ of $X$:
# it is row $\pi(t)$ of $h(X)$, and so row $t$ of $P h(X)$.
#
# (b) One after the other: $g(f(PX)) = g(P f(X)) = P g(f(X))$. In a sum, $P f(X) + P g(X) = P (f(X) + g(X))$. Side by side,
# $[P f(X),\, P g(X)] = P\,[f(X),\, g(X)]$.
# ````

# %% [markdown]
# LayerNorm normalises each row, a feed-forward layer acts on each row: case (a).
# Heads stand side by side, and a matrix on the right mixes their channels: (b), then (a).
# A residual connection adds the identity, and layers follow each other: case (b).
# So the whole encoder is equivariant, however deep.

# %%
pe_lab.seed(0)
encoder = pe_lab.Transformer(20, 32, 4, 3, kind="encoder").double().eval()
ids = torch.arange(6)[None]

def deviation(model, order):
    return (model(ids[:, order]) - model(ids)[:, order]).abs().max().item()

worst = max(deviation(encoder, order) for order in orders[::10])
print("three layers, four heads, below 1e-13:", worst < 1e-13)

# %% [markdown]
# The same for PyTorch's own encoder, written by other people.
# `eval()` matters: dropout draws new zeros in each call.

# %%
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
theirs = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
theirs = theirs.double().eval()
tokens = torch.randn(1, 6, 32).double()
print("below 1e-13:", permutation_error(theirs, tokens, orders[123]) < 1e-13)

# %% [markdown]
# ## What breaks it: masks
#
# A mask $M$ is a matrix of zeros and ones: $M_{mn} = 1$ if query $m$ may see key $n$.
# Each row has a one somewhere, and the softmax runs over the visible keys only.
# What happens if the mask is shuffled along with its tokens?
#
# ````{prf:proposition} A mask that goes along
# :label: prop-mask
#
# Let $f_M$ be the map of {eq}`eq-attention` with the mask $M$. Then $f_{PMP^\top}(PX) = P f_M(X)$ for every permutation matrix $P$.
# ````
#
# ````{prf:proof}
# Only step 3 of {prf:ref}`thm-equivariant` changes. The weight of the key in column $t$ for the query in row $s$ is now
# $M_{\pi(s)\pi(t)}\, e^{S_{\pi(s)\pi(t)}} / \sum_u M_{\pi(s)\pi(u)}\, e^{S_{\pi(s)\pi(u)}}$,
# because $PMP^\top$ has the entries $M_{\pi(s)\pi(t)}$.
# As before, $\pi(u)$ runs over all places as $u$ does, so this is the weight $A_{\pi(s)\pi(t)}$ of the sentence as it was. Steps 1, 2 and 4 stay as they are.
# ````

# %% [markdown]
# A **padding mask** hides tokens that are only there to fill the batch.
# It belongs to tokens, so whoever shuffles the sentence shuffles it too, and $PMP^\top$ is what the model gets.
# A **causal mask** belongs to places: place $m$ sees places up to $m$, whoever stands there.
# It stays $M$, and $M \neq PMP^\top$ as soon as $P$ moves anything.
# Which of the two breaks the symmetry?

# %%
def masked(mask=None, causal=False, seed=0):
    rng = torch.Generator().manual_seed(seed)
    weights = torch.randn(3, 16, 16, generator=rng).double() / 4
    def f(x, mask=mask):
        q, k, v = ((x @ w)[:, None] for w in weights)
        return pe_lab.attention(q, k, v, mask=mask, causal=causal)[:, 0]
    return f

tokens = torch.randn(1, 6, 16, generator=torch.Generator().manual_seed(1)).double()

# %%
real = torch.tensor([[True, True, True, True, False, False]])
f = masked()
errors_padding = [
    (f(tokens[:, p], real[:, p]) - f(tokens, real)[:, p]).abs().max() for p in orders
]
errors_causal = [permutation_error(masked(causal=True), tokens, p) for p in orders]
print("padding mask, all below 1e-14:", bool(max(errors_padding) < 1e-14))
print("causal mask, largest:", round(max(errors_causal), 1))

# %% [markdown]
# The causal mask breaks it, and not by a little: the deviation is of the size of the numbers themselves.
# One glance shows why.
# The first token sees itself only, so its output is its own value; in another place the same token gets a mean of several.
#
# How much order does it see?
# Leave the last token where it is, and shuffle the five before it.
# Will the last output notice, in one layer? And in two?

# %%
one = masked(causal=True)
past = torch.tensor([4, 2, 0, 3, 1, 5])  # the last token stays
layers = {"one layer": one, "two layers": lambda x: one(x + one(x))}
for name, f in layers.items():
    gap = (f(tokens[:, past]) - f(tokens))[0, -1].abs().max()
    seen, equal = bool(gap > 0.1), bool(gap < 1e-13)
    print(f"{name:11} above 0.1: {seen!s:6} below 1e-13: {equal}")

# %% [markdown]
# One layer is blind to the order of the past: its last query sees the same keys and values, in another order.
# The second layer is not, for what it reads are tokens that have each seen their *own* past.
# Each of them was mixed with those before it, and with no others.

# %% [markdown]
# A causal layer can even count, if it has something to compare.
# Three equal tokens in a row give three equal outputs: the mean of one value is the same, however often it is taken.
# Let another kind of token follow, and the mixture tells how many there have been.

# %%
counted = tokens[:, [0, 0, 0, 1, 1, 1]]  # one token three times, then another one
out = masked(causal=True)(counted)[0]
gap = torch.cdist(out, out)
print("places 0 and 2, one kind of token seen:", bool(gap[0, 2] < 1e-6))
print("places 3 and 5, two kinds, other counts:", round(gap[3, 5].item(), 2))

# %% [markdown]
# So a decoder is not blind to order, even without position vectors.
# The widespread sentence "without positional encoding a Transformer cannot tell the order of its tokens" is true of encoders.
# For decoders it is false.
# {cite:t}`irie2019`, {cite:t}`haviv2022` and {cite:t}`kazemnejad2023` train decoders that have nothing but the mask, and they learn.

# %% [markdown]
# ## What breaks it: position
#
# The other way is to mark the places.
# Add row $t$ of a fixed table $E$ to whatever token stands at place $t$.
# The head itself stays as symmetric as before; what changes is its input.
# After a shuffle it reads $PX + E$, which is $P\,(X + P^\top E)$:
#
# $$
# f(PX + E) = P\,f(X + P^\top E).
# $$
#
# The symmetry of the whole would ask for $P\,f(X + E)$: the tokens have exchanged their marks.
# No two rows of the table are equal, so every shuffle exchanges some; the cell shows that the outputs notice.

# %%
E = pe_lab.sinusoidal(6, d_model=16, dtype=torch.float64)
f = masked()
errors_marked = [permutation_error(lambda x: f(x + E), tokens, p) for p in orders]
print("with positions, largest:", round(max(errors_marked), 1))
print("smallest, but for the identity, above 0.01:", sorted(errors_marked)[1] > 0.01)

# %% [markdown]
# This is what {cite:t}`vaswani2017` do, in section 3.5 and for this reason.
# Which table is a good one, and how it should enter, is the subject of the rest of the book.

# %% [markdown]
# ## What others do instead
#
# Attention reaches every token in one step, so all are equally near, and this is why it needs marks.
# A recurrent network computes step $t$ from step $t - 1$: order is built into the computation.
# A convolution looks at neighbours: shuffle the tokens, and they have other neighbours.
# Neither needs marks to notice a shuffle.

# %%
pe_lab.seed(0)
rnn = torch.nn.RNN(16, 16, batch_first=True).double()
conv = torch.nn.Conv1d(16, 16, kernel_size=3, padding=1).double()
shuffle = orders[500]
print("RNN:", round(permutation_error(lambda x: rnn(x)[0], tokens, shuffle), 2))
print("CNN:", round(permutation_error(lambda x: conv(x.mT).mT, tokens, shuffle), 2))

# %% [markdown]
# But noticing order is not knowing the place.
# A convolution does the same everywhere.
# A constant input must give a constant output, except at the borders, where zeros are padded.
# Place 4 and place 5 of ten look the same to it.

# %%
constant = torch.ones(1, 16, 10).double()
out = conv(constant)[0].T
print("inside, places 1 to 8 equal: ", bool((out[1:9] - out[1]).abs().max() < 1e-14))
print("border and inside differ by:", round((out[0] - out[1]).abs().max().item(), 2))

# %% [markdown]
# It is relative order that a convolution sees, and absolute place leaks in from the padding.
# So it is too simple to say that convolutions need no positions:
# the convolutional translator of {cite:t}`gehring2017` *adds* learned position vectors to its input.

# %% mystnb={"figure": {"name": "fig-break-ingredients", "caption": "Largest deviation from f(PX) = P f(X) over the orders of six random tokens, in float64. Ingredients of an encoder stay at rounding; a causal mask, added positions, recurrence and convolution break the symmetry."}, "image": {"alt": "Dots on a logarithmic axis; one head, three layers and a padding mask near ten to the minus fifteen, causal mask, positions, RNN and CNN near one."}}
tried = orders[1::90]
ingredients = {
    "one head": max(errors[torch.float64]),
    "padding mask": max(errors_padding),
    "three full layers": max(deviation(encoder, p) for p in tried),
    "causal mask": max(errors_causal),
    "positions added": max(errors_marked),
    "RNN": max(permutation_error(lambda x: rnn(x)[0], tokens, p) for p in tried),
    "CNN": max(permutation_error(lambda x: conv(x.mT).mT, tokens, p) for p in tried),
}
largest = [float(value) for value in ingredients.values()]
with plots.figure(xlabel="largest deviation", size=(6.8, 3.0)) as (fig, ax):
    roles = ["content"] * 3 + ["highlight"] + ["position"] * 3
    ax.scatter(largest, list(ingredients), c=[plots.color(r) for r in roles], s=70)
    ax.set(xscale="log", xlim=(1e-17, 100))
    ax.invert_yaxis()
fig

# %% [markdown]
# {numref}`fig-break-ingredients` sums up: between the two groups lie more than ten powers of ten.
# No tolerance has to be chosen with care.

# %% [markdown]
# ## Does training stall without position?
#
# One reads that a Transformer without positional encoding does not learn:
# the loss, it is said, does not move for a few hundred steps.
# We can say beforehand of one task that it must be so.
#
# ````{prf:proposition} A floor without position
# :label: prop-floor
#
# Let $n$ random tokens be as likely in any order as in any other; independent draws from one distribution are an example.
# An equivariant model predicts for each token its own place, by a softmax over the $n$ places.
# Then the expected cross-entropy is at least $\ln n$ for each token, and even predictions reach it.
# ````
#
# ````{prf:proof}
# We shuffle the tokens once more, and watch one of them.
#
# 1. All orders are equally likely, so nothing changes on average if we draw the tokens $X$
#    and then shuffle them by a uniformly random $P$ that does not depend on $X$.
# 2. The model reads $PX$. By equivariance, the token of row $s$ of $X$ gets the prediction of row $s$ of $f(X)$, whatever $P$ is. Call this row $y$.
# 3. Given $X$, the prediction $y$ is fixed, and the token's place after the shuffle is any of the $n$ places with probability $1/n$.
#    The expected loss is $-\frac{1}{n}\sum_t \ln y_t$.
# 4. The logarithm is concave and $\sum_t y_t = 1$, so $\frac{1}{n}\sum_t \ln y_t \le \ln \frac{1}{n}\sum_t y_t = \ln \frac{1}{n}$.
#    Hence the expected loss is at least $\ln n$; with $y_t = 1/n$ it is exactly that.
# ````

# %% [markdown]
# For 16 places the floor is $\ln 16$.
# The next cell trains two small encoders live, one without position and one with sinusoids, on just this task.
# Predict both losses after a hundred steps.

# %%
from math import log
from pe_lab import lab

names = ["position/none", "position/sinusoidal"]
quick = lab.run("stall", size="quick", variants=names)
blind, sees = (quick.final(name, "held_out_loss").item() for name in names)
print("ln 16 =", round(log(16), 3))
print("without position, within 0.01 of it:", abs(blind - log(16)) < 0.01)
print("with sinusoids, below 1:", sees < 1)

# %% [markdown]
# Stuck, as it must be, forever.
# But that was the one task made to fail.
# The laboratory of this book has trained small models on seven tasks, three seeds each, with and without sinusoids.
# `lab.load` reads the results; each carries its provenance, and `pe-lab run stall` computes them anew.
# "Guess" is the loss of the best guess that looks at no token at all.

# %%
stall = lab.load("stall")
tasks = list(dict.fromkeys(name.split("/")[0] for name in stall.variants))
print(f"{'task':17}{'guess':>7}{'none':>8}{'sinusoidal':>12}")
for task in tasks:
    pair = [f"{task}/{kind}" for kind in ("none", "sinusoidal")]
    losses = [stall.final(name, "held_out_loss").mean() for name in pair]
    guess = stall.final(pair[0], "guess").mean()
    print(f"{task:17}{guess:7.2f}{losses[0]:8.2f}{losses[1]:12.2f}")

# %%
print("masked-character, steps 0, 200 and 1200:")
for kind in ("none", "sinusoidal"):
    name = f"masked-character/{kind}"
    curve = [stall.at(name, "held_out_loss", n).mean() for n in (0, 200, 1200)]
    print(f"{kind:11}", [f"{loss:.2f}" for loss in curve])

# %% mystnb={"figure": {"name": "fig-break-tasks", "caption": "Held-out loss during training without position (grey) and with sinusoids (green): mean and range over three seeds. Dotted: the loss of the best constant guess. Only two of the seven tasks stall from the start; in fixed-abc the two curves lie on each other."}, "image": {"alt": "Seven small panels of loss against training step. In position and permuted-abc the grey curve stays at the dotted line; in the other tasks it falls, in fixed-abc to zero."}}
with plots.figure(4, 2, size=(6.8, 4.2)) as (fig, axes):
    for ax, task in zip(axes, tasks, strict=False):
        for kind, paint in (("none", "content"), ("sinusoidal", "position")):
            steps, losses = stall.curve(f"{task}/{kind}", "held_out_loss")
            ax.plot(steps, losses.mean(0), color=plots.color(paint))
            low, high = losses.min(0), losses.max(0)
            ax.fill_between(steps, low, high, color=plots.color(paint), alpha=0.25)
        guess = stall.final(f"{task}/none", "guess").mean()
        ax.axhline(guess, color="#777777", ls=":", lw=1)
        ax.set_title(task, fontsize=10)
        ax.set(ylim=(-0.1, None), xlabel="step")
    axes[0].text(120, 2.35, "none", color=plots.color("content"))
    axes[0].text(120, 0.2, "sinusoidal", color=plots.color("position"))
    for ax in axes[::4]:
        ax.set_ylabel("held-out loss")
    axes[-1].axis("off")
fig

# %% [markdown]
# Read {numref}`fig-break-tasks` panel by panel.
#
# - **position, permuted-abc** (say where you stand): at the floor from the first step to the last. The claim holds.
# - **fixed-abc**: the tokens A, B, C always stand in this order, so a token gives its place away. Solved without position.
#   A popular test of encodings asks for just this, and shows nothing.
# - **left-neighbour** (name the token to your left): falls from 3.91 to 3.13. Knowing which tokens occur narrows the guess.

# %% [markdown]
# - **masked-character**: both fall to the best blind guess, and after 200 steps they are still one.
#   A look at the curves cannot tell the models apart. Then sinusoids go on to 2.58, against 2.97.
# - **next-character**: falls like any language model, to 2.13 against 1.84. The causal mask is there.
# - **numbers** (translate number words): far below its guess, at 0.49 when sinusoids are at 0.00.
#
# So "the loss does not move" is wrong in general, and it is no test of a positional encoding.

# %% [markdown]
# How low can *left-neighbour* get without position?
# The argument of {prf:ref}`prop-floor` tells us: whoever sees no order knows that its neighbour is one of the 15 other tokens, all equally likely.
# The best prediction is how often each occurs among them, and the floor is the mean entropy of these frequencies.

# %%
draws = torch.randint(50, (2000, 16), generator=torch.Generator().manual_seed(0))
bags = torch.nn.functional.one_hot(draws, 50)
others = (bags.sum(dim=1, keepdim=True) - bags) / 15  # the other 15 of each sentence
entropy = torch.special.entr(others).sum(dim=-1).mean().item()
print("floor of left-neighbour:", round(entropy, 1))

# %% [markdown]
# 3.13 is still above this floor: a model without position goes on learning for a long time, and never gets near 0.

# %% [markdown]
# ## A test that takes no training
#
# {prf:ref}`thm-equivariant` offers a better one: shuffle the input and see whether the output is shuffled alike.
# It takes two forward passes and works on any model that reads sequences.
# If the deviation is at the level of rounding, order does not enter; if it is of the size of the outputs, it does.
# Predict the last line, a decoder without any encoding.

# %%
def sees_order(model):
    return deviation(model, torch.tensor([3, 1, 4, 0, 5, 2])) > 1e-3

encodings = [pe_lab.NoPE(), pe_lab.Sinusoidal(32), pe_lab.RoPE(8), pe_lab.ALiBi(4)]
for encoding in encodings:
    model = pe_lab.Transformer(20, 32, 4, 2, kind="encoder", encoding=encoding)
    print(f"encoder, {type(encoding).__name__:11}", sees_order(model.eval()))
decoder = pe_lab.Transformer(20, 32, 4, 2, kind="decoder")
print(f"decoder, {'NoPE':11}", sees_order(decoder.eval()))

# %% [markdown]
# The test says *that* order enters, not through which door: a causal mask passes it, too.
# It passes RoPE and ALiBi as well, which add nothing to the input and change the scores instead.
# %% [markdown]
# ## Common mistakes
#
# **Comparing the wrong things.** $f(PX) = f(X)$ is invariance, and attention does not have it.
# Who compares unshuffled outputs finds a difference, and believes that order is seen.

# %%
order = torch.tensor([3, 1, 4, 0, 5, 2])
wrong = (encoder(ids[:, order]) - encoder(ids)).abs().max()
right = (encoder(ids[:, order]) - encoder(ids)[:, order]).abs().max()
print("f(PX) − f(X):  ", round(wrong.item(), 1))
print("f(PX) − P f(X), below 1e-13:", bool(right < 1e-13))

# %% [markdown]
# **Dropout left on.** In training mode each call drops other channels, and every model seems to see order.
# Call `eval()` first.

# %%
pe_lab.seed(0)
noisy = pe_lab.Transformer(20, 32, 4, 2, kind="encoder", dropout=0.1)
print("train():", sees_order(noisy.train()), " eval():", sees_order(noisy.eval()))

# %% [markdown]
# **Shuffling the batch.** Most models take (batch, length, …).
# Permuting axis 0 exchanges sentences, and every model that keeps them apart is equivariant to that, with positions or without.

# %%
batch = torch.randint(20, (6, 5), generator=torch.Generator().manual_seed(2))
table = pe_lab.Sinusoidal(32)
marked = pe_lab.Transformer(20, 32, 4, 2, kind="encoder", encoding=table)
marked = marked.double().eval()
by_batch = (marked(batch[order]) - marked(batch)[order]).abs().max()
print("a model with positions, batch shuffled, below 1e-13:", bool(by_batch < 1e-13))

# %% [markdown]
# **Equal tokens.** A sentence of six equal tokens is its own permutation: the test passes for everyone.
# Use tokens that differ, and an order that moves them.

# %%
ones = torch.ones(1, 6, dtype=torch.long)
print("equal tokens unchanged by the shuffle:", torch.equal(ones[:, order], ones))

# %% [markdown]
# ## Exercises
#
# Each stub runs as it is.
# Replace the dots, run the cell, and `check` names the kind of mistake if there is one.

# %% [markdown]
# `````{exercise} A permutation as a matrix ★
# :label: ex-01-matrix
#
# Write `permutation_matrix(order)`: the float64 matrix $P$ for which row $t$ of $PX$ is row `order[t]` of $X$.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Row $t$ of $P$ picks one row of $X$. Where does its one stand?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The identity picks row $t$ for row $t$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# $P = P\,I$: shuffle the rows of an identity matrix.
# ````
# `````

# %% tags=["exercise"]
def permutation_matrix(order):
    """P with (P X)[t] = X[order[t]], float64."""
    ...


pe_lab.check("01-matrix", permutation_matrix)
# %% [markdown]
# ````{solution} ex-01-matrix
# :class: dropdown
#
# ```python
# def permutation_matrix(order):
#     """P with (P X)[t] = X[order[t]], float64."""
#     return torch.eye(len(order), dtype=torch.float64)[order]
#
#
# pe_lab.check("01-matrix", permutation_matrix)
# ```
# ````

# %% [markdown]
# `````{exercise} Two sentences for one answer ★
# :label: ex-01-confuse
#
# Give two different sentences of four tokens, as lists of ids from 0, 1 and 2,
# that an encoder without position must answer alike once its outputs are averaged.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# By {prf:ref}`cor-bag`, one sentence has to be a permutation of the other.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Count: how often does each token occur in the two?
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Write any sentence that is no palindrome, and read it backwards.
# ````
# `````

# %% tags=["exercise"]
first = second = ...

pe_lab.check("01-confuse", (first, second))
# %% [markdown]
# ````{solution} ex-01-confuse
# :class: dropdown
#
# ```python
# first, second = [0, 1, 2, 2], [2, 2, 1, 0]
#
# pe_lab.check("01-confuse", (first, second))
# ```
# ````

# %% [markdown]
# `````{exercise} Self-attention in three lines ★★
# :label: ex-01-attention
#
# Write {eq}`eq-attention` for one head: `x` is (L, d), the weights are (d, d_k), and the result is (L, d_k).
# Use matrix products and `softmax` only.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Three products give queries, keys and values.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Scores are (L, L), one row for each query, divided by the root of the number of columns of `w_q`.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# The weights of a query sum to one: which axis does the softmax run along?
# ````
# `````

# %% tags=["exercise"]
def attend(x, w_q, w_k, w_v):
    """softmax(x w_q (x w_k)ᵀ / √d_k) x w_v."""
    ...


pe_lab.check("01-attention", attend)
# %% [markdown]
# ````{solution} ex-01-attention
# :class: dropdown
#
# ```python
# def attend(x, w_q, w_k, w_v):
#     """softmax(x w_q (x w_k)ᵀ / √d_k) x w_v."""
#     scores = (x @ w_q) @ (x @ w_k).T / w_q.shape[1] ** 0.5
#     weights = scores.softmax(dim=-1)
#     return weights @ (x @ w_v)
#
#
# pe_lab.check("01-attention", attend)
# ```
# ````

# %% [markdown]
# `````{exercise} Take the mask along ★★
# :label: ex-01-mask
#
# Entry $(m, n)$ of a boolean mask says whether the token at $m$ may see the token at $n$.
# The tokens are shuffled by `order`. Write `move_mask(mask, order)`, so that everybody still sees the same tokens.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# The token now at place $s$ was at place `order[s]`. Whom could it see?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The formula is in the section on masks: $PMP^\top$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Two rounds of indexing: rows first, then columns.
# ````
# `````

# %% tags=["exercise"]
def move_mask(mask, order):
    """The mask after the tokens have been shuffled: P M Pᵀ."""
    ...


pe_lab.check("01-mask", move_mask)
# %% [markdown]
# ````{solution} ex-01-mask
# :class: dropdown
#
# ```python
# def move_mask(mask, order):
#     """The mask after the tokens have been shuffled: P M Pᵀ."""
#     return mask[order][:, order]
#
#
# pe_lab.check("01-mask", move_mask)
# ```
# ````

# %% [markdown]
# `````{exercise} Measure the symmetry ★★
# :label: ex-01-error
#
# Write `symmetry_error(f, x, order)`: the largest deviation of `f` from equivariance, for one `x` of shape (L, d) and one order.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Two runs: one on the shuffled input, one on the input as it is.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Equivariance says how the two outputs correspond, row by row. Bring them into the same order before you compare.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# $\max |f(PX) - P f(X)|$, and $PY$ is `y[order]`.
# ````
# `````

# %% tags=["exercise"]
def symmetry_error(f, x, order):
    """max |f(PX) − P f(X)|."""
    ...


pe_lab.check("01-error", symmetry_error)
# %% [markdown]
# ````{solution} ex-01-error
# :class: dropdown
#
# ```python
# def symmetry_error(f, x, order):
#     """max |f(PX) − P f(X)|."""
#     return (f(x[order]) - f(x)[order]).abs().max()
#
#
# pe_lab.check("01-error", symmetry_error)
# ```
# ````

# %% [markdown]
# `````{exercise} How low can the loss go? ★★★
# :label: ex-01-floor
#
# As in {prf:ref}`prop-floor`, an equivariant model predicts the place of each of `length` random tokens. But now
# the tokens at the first `known` places carry a mark that tells their place, so the model can predict those for certain.
# Write `floor(length, known)`: the lowest mean loss, in nats, that training can reach.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# What is the least loss of a marked token? Among how many places can an unmarked one be?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The mean runs over all `length` tokens.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# If all tokens are marked the loss is 0; take care not to compute $\ln 0$.
# ````
# `````

# %% tags=["exercise"]
from math import log

def floor(length, known):
    """The lowest mean cross-entropy in nats."""
    ...


pe_lab.check("01-floor", floor)
# %% [markdown]
# ````{solution} ex-01-floor
# :class: dropdown
#
# ```python
# from math import log
#
# def floor(length, known):
#     """The lowest mean cross-entropy in nats."""
#     blind = length - known
#     return blind / length * log(blind) if blind else 0.0
#
#
# pe_lab.check("01-floor", floor)
# ```
# ````

# %% [markdown]
# ## Quiz
#
# 1. An encoder without position reads "dog bites man" and "man bites dog". What is equal? (a) its output matrix;
#    (b) the set of its output rows; (c) nothing, as the first word differs.
#
# ````{admonition} Answer 1
# :class: dropdown
# **b.** The rows are the same in another order. Not a: the matrix has its first and last row exchanged.
# Not c: what a row holds depends on the word and on the bag of all words, and both sentences have the same bag.
# ````
#
# 2. In float32 a shuffled run differs from the shuffled outputs by a few times 1e-07. Why? (a) the theorem is only approximate;
#    (b) sums were taken in another order; (c) the model has a bug.
#
# ````{admonition} Answer 2
# :class: dropdown
# **b.** Addition of rounded numbers is not associative. Not a: for real numbers the equation is exact.
# Not c: a bug that lets position in gives deviations of the size of the outputs.
# ````

# %% [markdown]
# 3. Which mask breaks the symmetry? (a) padding; (b) causal; (c) any mask.
#
# ````{admonition} Answer 3
# :class: dropdown
# **b.** It belongs to places and stays when tokens move. Not a: a padding mask belongs to tokens and travels with them.
# Not c, for the same reason: what matters is whether the mask goes along, $PMP^\top$.
# ````
#
# 4. A language model without positional encoding trains well. What follows? (a) its loss curve proves that it needs no order;
#    (b) it probably has a causal mask; (c) there must be position vectors somewhere.
#
# ````{admonition} Answer 4
# :class: dropdown
# **b.** The mask lets it count. Not a: its loss ends higher than with sinusoids in our run. Not c: in our
# run there were none.
# ````

# %% [markdown]
# ## Take-away
#
# - $f(PX) = P f(X)$ for self-attention, whatever the weights; heads, residuals, LayerNorm and feed-forward layers keep it.
# - Pooled outputs are then invariant: a bag of words. Rounding blurs this in the seventh digit of float32, not more.
# - A causal mask and added positions break the symmetry; a padding mask does not.
# - Whether training stalls without position depends on the task. Shuffling the input tells at once whether order is seen.
#
# {numref}`fig-break-equation` is the equation, drawn.

# %% mystnb={"figure": {"name": "fig-break-equation", "caption": "One head on six tokens, first eight channels: outputs, outputs of the shuffled input, and the shuffled outputs. The last two are equal."}, "image": {"alt": "Three heat maps of six rows; the second and third are identical, and contain the rows of the first in another order."}}
f = masked()
outputs = [f(tokens)[0], f(tokens[:, order])[0], f(tokens)[0][order]]
plots.heatmaps(
    [output[:, :8] for output in outputs],
    titles=["f(X)", "f(PX)", "P f(X)"],
    xlabel="channel",
    ylabel="place",
    size=(6.8, 2.5),
)

# %% [markdown]
# ## Further reading
#
# - {cite:t}`vaswani2017`: section 3.5 says in one sentence why position must be put in, and offers the sinusoids of {ref}`ch-tables`.
# - {cite:t}`lee2019`: attention used on purpose as a function on sets, with layers that are equivariant and a pooling that is invariant.
# - {cite:t}`zaheer2017`: which functions on sets are there at all? The sibling result without attention.
# - {cite:t}`yun2020`: without positions, Transformers approximate every continuous equivariant function on a compact set;
#   with positions added, every continuous one.
# - {cite:t}`irie2019`: deep language models for speech recognition, which do slightly better without positional encoding.
# - {cite:t}`haviv2022`: language models without positional encoding, and probes that read positions from their layers.
# - {cite:t}`kazemnejad2023`: how such a decoder can represent absolute and relative positions, and where it extrapolates better.
# - {cite:t}`sinha2021`: how little masked language models suffer when word order is destroyed in pre-training.

# %% tags=["nbval-ignore-output"] reason="versions and processors differ from machine to machine"
pe_lab.provenance()
