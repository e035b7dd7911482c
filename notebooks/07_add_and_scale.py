# %% [markdown]
# (ch-add)=
# # Add, scale, and find the √d_model bug
#
# :::{div} strip
# 50 minutes to read · under 25 s of CPU · you need {ref}`ch-tables` and {ref}`ch-score`.
# :::
#
# **You will be able to**
#
# - add a table to word vectors at the right size ({ref}`ex-07-join`);
# - say how much of a sum is word and how much is place ({ref}`ex-07-share`), and where each enters a score ({ref}`ex-07-terms`);
# - show that adding is concatenating with tied weights ({ref}`ex-07-tie`);
# - find a missing or an extra $\sqrt{d_\text{model}}$ in a model that only seems slow ({ref}`ex-07-culprit`);
# - keep padding out of the sum ({ref}`ex-07-pad`).

# %% [markdown]
# ## A model that learns late
#
# Seven models learn one task: number words in, Chinese numerals out.
# "four hundred seven" becomes 四百零七.
# Same data, same optimizer, same number of parameters; three seeds each.
# The laboratory keeps them under code names, A to G.
# Model A is healthy; model B is our suspect. Here are their losses on held-out numbers.

# %%
import torch
import pe_lab
from pe_lab import lab, plots

torch.set_num_threads(1)
result = lab.load("sqrt-d")
models = dict(zip("ABCDEFG", result.variants[:7], strict=True))  # do not peek

def loss_at(code, step):
    losses = result.at(models[code], "held_out_loss", step)
    mean, spread = lab.mean_spread(losses)
    return f"model {code} at step {step}: {mean:.2f} ± {spread:.2f}"

for code in "AB":
    for step in (100, 200, 250):
        print(loss_at(code, step))

# %% mystnb={"figure": {"name": "fig-add-suspect", "caption": "Held-out loss of two models that should be equal, mean and range over three seeds. The suspect learns the task, but late."}, "image": {"alt": "Two falling curves; the healthy one is near zero at step 200, the suspect's one follows much later."}}
names = {"A, healthy": models["A"], "B, the suspect": models["B"]}
curves = {name: result.curve(v, "held_out_loss") for name, v in names.items()}
steps = curves["A, healthy"][0]
plots.lines(
    steps,
    {name: losses.mean(0) for name, (_, losses) in curves.items()},
    bands={n: (c.min(0), c.max(0)) for n, (_, c) in curves.items()},
    colors={"A, healthy": "position", "B, the suspect": "query"},
    xlabel="step",
    ylabel="held-out loss",
)

# %% [markdown]
# The suspect is not broken: no error, no NaN, and the loss in {numref}`fig-add-suspect` falls.
# It is only late.
# Most people would turn to the learning rate.
# The fault is in one line that they would not look at, where the word vectors meet the table.
# Three clues lie on the way, and you name the culprit.

# %% [markdown]
# ## Try it
#
# Choose the initialisation 1/sqrt(d) and switch the factor $\sqrt d$ on and off: watch the word's bar against that of the table.
# Then choose PyTorch's initialisation, 1, and switch again.
# In which of the four cases are the two bars of similar length?

# %%
pe_lab.explore.ScaleBalance()

# %% [markdown]
# ## Three ways to put position in
#
# A word vector $e$ and a row $p$ of the table can be added, multiplied channel by channel, or laid side by side.
# {cite:t}`vaswani2017` add; their section 3.5 says that both have the same width "so that the two can be summed".
# (Their comparison with learned vectors does not touch the question: those are added, too, and so are those of {cite:t}`gehring2017`.)
# What would the others change?

# %% [markdown]
# Laid side by side, $[e; p]$ needs a wider weight, with a block for each part.
# Predict: what must hold of the two blocks so that the result is that of $W(e + p)$?

# %%
rng = torch.Generator().manual_seed(0)
e, p, W_e, W_p = (
    torch.randn(*shape, generator=rng).double()
    for shape in [(16,), (16,), (8, 16), (8, 16)]
)
wide = torch.cat((W_e, W_p), dim=1) @ torch.cat((e, p))
print("[W_e W_p][e; p] = W_e e + W_p p:", torch.allclose(wide, W_e @ e + W_p @ p))
tied = torch.cat((W_e, W_e), dim=1) @ torch.cat((e, p))
print("tied blocks give W(e + p):      ", torch.allclose(tied, W_e @ (e + p)))

# %% [markdown]
# ````{prf:proposition} Adding and concatenating contain each other
# :label: prop-tied
#
# Let $e, p \in \mathbb{R}^d$.
#
# (a) $W(e + p) = [W\; W]\,[e; p]$: what a layer makes of the sum, a wider layer makes of $[e; p]$, with two equal blocks.
#
# (b) If $W_e \ne W_p$, then $[W_e\; W_p]\,[e; p]$ is no function of $e + p$.
#
# (c) $[e'; p'] = [e'; 0] + [0; p']$ for all $e' \in \mathbb{R}^a$ and $p' \in \mathbb{R}^b$: to concatenate is to add vectors that use different channels.
# ````
#
# ````{prf:proof}
# (a) Block by block, $[W\; W]\,[e; p] = We + Wp = W(e + p)$.
#
# (b) Some $x$ has $W_e x \ne W_p x$. The pairs $(x, 0)$ and $(0, x)$ have the same sum $x$, and the images $W_e x$ and $W_p x$.
#
# (c) Zeros change nothing in a sum.
# ````

# %% [markdown]
# By (a), two full vectors side by side can do all that their sum can, at the price of wider weights.
# By (c), words that leave channels free for the place are as good as concatenated; a model that learns its words may free some.
# At *equal* width neither contains the other: narrower words are words of fewer dimensions, and sinusoids use all channels.

# %% [markdown]
# A widespread argument for adding says that concatenation keeps words and places apart, while a sum lets them mix.
# It is wrong: in a score, $W_e e + W_p p$ meets its like, and every part meets every other.
# Here is such a score, with the one term in which a *word* asks for a *place*.

# %%
U_e, U_p = torch.randn(2, 8, 16, generator=rng).double()  # for the keys
score = (W_e @ e + W_p @ p) @ (U_e @ e + U_p @ p)
terms = [(W @ x) @ (U @ y) for W, x in [(W_e, e), (W_p, p)]
         for U, y in [(U_e, e), (U_p, p)]]
print("four terms:", torch.allclose(sum(terms), score))
print("word asks for place:", round(terms[1].item(), 1))

# %% [markdown]
# A product $e \odot p$ is another matter.
# A zero in one factor deletes what the other has to say, and the row of position 0 has a zero in every sine channel.

# %%
row_0 = pe_lab.sinusoidal(1, 512)[0]
print("zeros in row 0:", (row_0 == 0).sum().item(), "of", len(row_0))
print("largest entry of any row:", pe_lab.sinusoidal(512, 512).abs().max().item())

# %% [markdown]
# Half of the first word is deleted.
# On the other hand no entry exceeds 1, so a product with sinusoids makes no channel larger.
# A product that blows up has other factors.

# %% [markdown]
# ### The same budget for all
#
# Which way learns best?
# The laboratory trained causal language models on characters and on words.
# `concat-8` gives 8 of 64 channels to the place, `concat-32` half of them.
# What narrower words save goes into the feed-forward layers, so that the numbers of parameters agree.

# %%
ways = ["none", "add", "multiply", "concat-8", "concat-32"]
joined = lab.load("add-concat")
for symbols in ("characters", "words"):
    kinds = joined.of(f"{symbols}/add")[0].config["vocabulary_size"]
    counts = [joined.final(f"{symbols}/{w}", "parameters")[0] for w in ways]
    print(f"{kinds} {symbols}: within 0.1 % of {min(counts):.0f} parameters:",
          max(counts) < 1.001 * min(counts))

# %%
for symbols in ("characters", "words"):
    for way in ways:
        losses = joined.final(f"{symbols}/{way}", "held_out_loss")
        mean, spread = lab.mean_spread(losses)
        print(f"{symbols:11}{way:10}{mean:7.3f} ± {spread:.3f}")

# %% mystnb={"figure": {"name": "fig-add-ways", "caption": "Gain in held-out loss over the model without position, mean and standard deviation over three seeds, at equal numbers of parameters. The two panels have scales of their own."}, "image": {"alt": "Two panels of four bars. With characters, concatenation with half of the channels for the place gains most, then the smaller one, then adding, and multiplying least. With words, adding and both concatenations gain about the same, and multiplying loses."}}
with plots.figure(2, size=(6.8, 2.9), sharey=True) as (fig, axes):
    for ax, symbols in zip(axes, ("characters", "words"), strict=True):
        none = joined.final(f"{symbols}/none", "held_out_loss")
        finals = [joined.final(f"{symbols}/{w}", "held_out_loss") for w in ways[1:]]
        gains = [none - losses for losses in finals]
        means, spreads = zip(*(lab.mean_spread(g) for g in gains), strict=True)
        ax.barh(ways[1:], means, xerr=spreads, color=plots.color("position"))
        ax.axvline(0, color="#777777", lw=1)
        ax.set(title=symbols, xlabel="gain in nats")
    axes[0].invert_yaxis()
fig

# %% [markdown]
# Among characters, half of the channels for the place wins, and by more than the spread.
# A likely reason: 65 characters need few channels.
# Among 2048 words, adding and concatenating are equal within the spread, and the product does no better than no position.
#
# "Concatenation is worse" and "addition loses information" are both too simple.
# {numref}`fig-add-ways` has two vocabularies and two answers.

# %% [markdown]
# ## Four terms in a score
#
# Let query and key be the sums themselves, without weights.
# Their score is a product of two sums:
#
# $$
# \begin{aligned}
# (e_m + p_m)\cdot(e_n + p_n) ={} & \underbrace{e_m\cdot e_n}_{\text{word–word}} + \underbrace{e_m\cdot p_n}_{\text{word–place}} \\
# & + \underbrace{p_m\cdot e_n}_{\text{place–word}} + \underbrace{p_m\cdot p_n}_{\text{place–place}}.
# \end{aligned}
# $$ (eq-four)
#
# The last one is the kernel of {ref}`ch-score`; the first is attention without position.
# {cite:t}`ke2021` call the two in the middle noisy, and give words and places weights of their own instead of one sum.
# (They are sometimes cited *for* adding, and argue against it.)
# How large is each term, at first? That depends on how large the words are.

# %%
def four_terms(words, table):  # both (L, d): the four (L, L) matrices
    return {
        "word–word": words @ words.T,
        "word–place": words @ table.T,
        "place–word": table @ words.T,
        "place–place": table @ table.T,
    }

def word_vectors(std, factor=1.0, rows=256, d_model=512, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return factor * std * torch.randn(rows, d_model, generator=rng).double()

table = pe_lab.sinusoidal(256, 512, dtype=torch.float64)

# %%
def sizes(words):  # root mean square off the diagonal: different tokens only
    off = ~torch.eye(len(words), dtype=torch.bool)
    terms = four_terms(words, table).items()
    return {name: term[off].square().mean().sqrt().item() for name, term in terms}

scales = {
    "N(0, 1/d)": (512**-0.5, 1),
    "N(0, 1/d) · √d": (512**-0.5, 512**0.5),
    "N(0, 1)": (1, 1),
    "N(0, 1) · √d": (1, 512**0.5),
}
for name, scale in scales.items():
    row = "  ".join(f"{term} {size:6.0f}" if size > 9 else f"{term} {size:6.2f}"
                    for term, size in sizes(word_vectors(*scale)).items())
    print(f"{name:15} {row}")

# %% [markdown]
# With words from $N(0, 1/d)$ the place–place term is 130 and the word–word term 0.04: such a head sees places and no words.
# With $N(0, 1)$ and the factor on top the words are at 11658, and it is the other way round.
# In the two cases in between both can be heard.
# The mixed terms are not zero, but noise: random words have nothing to say about places.

# %% [markdown]
# ### Can the parts be found again?
#
# After the sum, nobody stores $e$ and $p$.
# A simple reader has the table and the list of words, and takes the row that fits best, the largest product.
# (For words it subtracts half of the squared norm, so that long ones have no advantage.)
# Predict how often it finds the place, in each of the three cases.

# %%
def found(std, factor, tokens=2000, count=1000):
    rng = torch.Generator().manual_seed(1)
    words = word_vectors(std, factor, rows=count)
    word = torch.randint(count, (tokens,), generator=rng)
    place = torch.randint(len(table), (tokens,), generator=rng)
    x = words[word] + table[place]
    best_place = (x @ table.T).argmax(dim=1)
    best_word = (x @ words.T - words.square().sum(dim=1) / 2).argmax(dim=1)
    hits = (best_word == word, best_place == place)
    return [hit.double().mean() for hit in hits]

for name in ("N(0, 1/d)", "N(0, 1)", "N(0, 1) · √d"):
    word, place = found(*scales[name])
    print(f"{name:13} word found {word:4.0%}   place found {place:4.0%}")

# %% [markdown]
# In balance, the sum holds both: every word is found among 1000, and nearly every place among 256.
# What is missed are neighbours, whose rows are alike.
# Out of balance, one part drowns the other.
# So "a sum mixes the two beyond recovery" is as wrong as "a sum always keeps both": it depends on width and scale.

# %% [markdown]
# ## First clue: how long is a vector?
#
# The table has no choice: $\lVert PE(p)\rVert = \sqrt{d/2}$ at every position, as {ref}`ch-tables` proved, 16 at $d = 512$.
# (One reads 22.6, which is $\sqrt{512}$: the root of the width, not of half of it.)
# The words depend on who initialised them.
# Share is the word's part in the sum of the two norms; energy is the squared norm.
# Predict the norm of 512 numbers from $N(0, 1)$, before you look at the cell and at {numref}`fig-add-norms`.

# %%
from math import sqrt

d = 512
inits = {
    "paper's factor, N(0, 1/d)": (1 / sqrt(d), sqrt(d)),
    "factor forgotten, N(0, 1/d)": (1 / sqrt(d), 1),
    "nn.Embedding, N(0, 1)": (1, 1),
    "nn.Embedding times √d": (1, sqrt(d)),
    "BERT's N(0, 0.02²)": (0.02, 1),
    "Xavier, 37000 words, times √d": (sqrt(2 / (37000 + d)), sqrt(d)),
}
norms = {
    name: word_vectors(*scale, rows=4000).norm(dim=1).mean().item()
    for name, scale in inits.items()
}
for name, norm in norms.items():
    energy = norm**2 / (norm**2 + 256)
    share = norm / (norm + 16)
    print(f"{name:30} norm {norm:6.2f}  share {share:5.1%}  of energy {energy:5.2%}")

# %% mystnb={"figure": {"name": "fig-add-norms", "caption": "Mean norm of a word vector at d = 512 under six initialisations. The line is the norm of every row of the table, 16."}, "image": {"alt": "Six horizontal bars on a logarithmic axis with a vertical line at sixteen; two bars end near the line, two far below, one a little below, one far above."}}
fig = plots.bars(list(norms), list(norms.values()), xlog=True, colors="content",
                 xlabel="norm of a word vector", size=(6.8, 3.0))
fig.axes[0].axvline(16, color=plots.color("position"), lw=2)
fig

# %% [markdown]
# {cite:t}`vaswani2017` multiply the embeddings by $\sqrt{d_\text{model}}$, in section 3.4.
# The paper does not say how they are drawn; their code {cite:p}`vaswani2018` takes $N(0, 1/d)$. Then norm 1 becomes 22.6, of the order of 16.
# Without the factor, the table has 16 times the norm of a word and 256 times its energy.
# That it cannot drown the words because its norm does not grow with $p$ is no comfort: 16 is enough.

# %% [markdown]
# PyTorch's `nn.Embedding` draws from $N(0, 1)$.
# There the words have norm 22.6 *without* the factor, and with it 512, which is 32 times the table.
# A widespread statement says that the standard initialisation has variance $1/d$.
# In PyTorch it has not:

# %%
embedding = torch.nn.Embedding(2000, 512)
print("variance:", round(embedding.weight.var().item(), 2), " 1/d:", round(1 / 512, 4))

# %% [markdown]
# So the factor is right or wrong *together with* an initialisation.
# One line of code, `x * sqrt(d)`, cures one model and ruins another.
#
# The last bar of {numref}`fig-add-norms` is a third case.
# Code that loops `xavier_uniform_` over all matrices redraws the embedding, too; its numbers get smaller as the vocabulary grows.
# With 37000 words and the factor, norm 3.74 stands beside 16.
#
# Now measure the models as they start, after all factors.

# %%
print("width:", result.of(models["A"])[0].config["sizes"]["d_model"])
for code in "ABCEF":
    word = result.final(models[code], "word_norm").mean()
    place = result.final(models[code], "position_norm").mean()
    print(f"model {code}   words {word:5.0f}   table {place:5.1f}")

# %% [markdown]
# ## Second clue: ratio or size?
#
# The suspect's words have norm 1, an eighth of what they stand beside.
# Is it the *ratio* that hurts, or is it that the words are small?
# Models E and F are controls with the healthy ratio: in E all is smaller by $\sqrt d$, in F all is larger by $\sqrt d$.
# Predict where the two run, near A or near B.

# %%
for code in "AEFB":
    print(loss_at(code, 200))

# %% [markdown]
# E is almost as fast as the healthy model, so small is not the problem; small *beside a large table* is.
# F has the right ratio, too, and is late, though less so than B.
# A factor on everything is not quite harmless: large inputs make large scores, and we look at those next.

# %% [markdown]
# ## Third clue: what does attention look at?
#
# We need no training for it: one head with random $W_q$ and $W_k$ at $d = 128$, and 16 tokens.
# A score is linear in its key, and the key is $W_k$ of a word plus $W_k$ of a place.
# Softmax ignores what is constant along a row.
# So we compare how much each part varies along the rows.

# %%
def first_look(std, factor, place_factor, seed, length=16, d_model=128):
    words = word_vectors(std, factor, length, d_model, seed)
    places = place_factor * pe_lab.sinusoidal(length, d_model, dtype=torch.float64)
    rng = torch.Generator().manual_seed(100 + seed)
    W_q, W_k = torch.randn(2, d_model, 32, generator=rng).double() / sqrt(d_model)
    queries = (words + places) @ W_q / sqrt(32)
    by_word, by_place = queries @ (words @ W_k).T, queries @ (places @ W_k).T
    varies = [x.var(dim=1).mean() for x in (by_word, by_place)]
    top = (by_word + by_place).softmax(dim=1).amax(dim=1).mean()
    return torch.stack((varies[0] / sum(varies), top))

# %%
r = sqrt(128)
recipes = {"A": (1 / r, r, 1), "B": (1 / r, 1, 1), "D": (1, r, 1),
           "E": (1 / r, 1, 1 / r), "F": (1, r, r)}
for code, recipe in recipes.items():
    looks = torch.stack([first_look(*recipe, seed) for seed in range(20)])
    share, top = looks.mean(dim=0).tolist()
    print(f"model {code}   by the word {share:5.1%}   largest weight {top:.2f}")

# %% [markdown]
# In A, nine tenths of what distinguishes one key from another is its word; in B it is less than a tenth.
# The suspect's first attention looks at places, and hardly at words.
#
# D and F show another trouble.
# Their scores are so large that one key takes nearly all, and where a softmax is saturated its gradient is small.
# D, on top of that, looks at words alone.
# Nearly even weights, as in E, did little harm.

# %% [markdown]
# ## Name the culprit
#
# You have the clues.
# These are the true names:
#
# - `right`: $N(0, 1/d)$, times $\sqrt d$;
# - `forgotten`: $N(0, 1/d)$, no factor;
# - `default`: PyTorch's $N(0, 1)$, no factor;
# - `both`: PyTorch's $N(0, 1)$, times $\sqrt d$;
# - `small` and `large`: the controls;
# - `none`: no position at all.
#
# Which one is B?

# %% [markdown]
# `````{exercise} Name the culprit ★★
# :label: ex-07-culprit
#
# Set `culprit` to one of the seven names.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# The table of B has norm 8, as it should at $d = 128$. That leaves out the controls, and `none`.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Its words have norm 1. Which initialisation gives norm 1, and what should have happened to it?
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# With $N(0, 1)$ the words would have norm $\sqrt{d}$ before any factor, like those of the healthy model.
# ````
# `````

# %% tags=["exercise"]
culprit = ...

pe_lab.check("07-culprit", culprit)
# %% [markdown]
# ````{solution} ex-07-culprit
# :class: dropdown
#
# ```python
# culprit = "forgotten"
#
# pe_lab.check("07-culprit", culprit)
# ```
# ````

# %% [markdown]
# ## All seven, side by side
#
# Now look behind the code names.
# The cell prints exact matches and BLEU {cite:p}`papineni2002,post2018` on held-out numbers, over three seeds.
# Before you run it: which is worse, the factor forgotten, or the factor on top of $N(0, 1)$?

# %%
def report(name):
    match = lab.mean_spread(result.final(name, "exact_match"))
    bleu = lab.mean_spread(result.final(name, "bleu"))
    exact = f"exact {match[0]:.3f} ± {match[1]:.3f}"
    print(f"{name:15}{exact}   BLEU {bleu[0]:5.1f} ± {bleu[1]:.1f}")

print("steps:", result.curve("right", "held_out_loss")[0][-1])
for code, name in models.items():
    print(code, end="  ")
    report(name)

# %% mystnb={"figure": {"name": "fig-add-seven", "caption": "Held-out loss of the seven models, mean over three seeds. Losing the balance costs time; with N(0, 1) and the factor on top, it is worse than having no position."}, "image": {"alt": "Seven curves of loss against step. Right, default and small fall together; large falls later and forgotten last; none stops at about one half and both stays near one."}}
plots.lines(
    result.curve("right", "held_out_loss")[0],
    {name: result.curve(name, "held_out_loss")[1].mean(0) for name in models.values()},
    xlabel="step",
    ylabel="held-out loss",
    size=(6.8, 4.0),
)

# %% [markdown]
# Three healthy ones in {numref}`fig-add-seven`: `right`, `default` and `small`.
# The forgotten factor costs more than a tenth of the exact matches at this budget.
#
# The factor on top of $N(0, 1)$ is the real disaster, worse than no position at all.
# It has both troubles of the third clue: words that drown the table, and a saturated softmax.
# The second alone, in `large`, costs far less.

# %% [markdown]
# ### Is it forever?
#
# One finds rules that put the cost of this bug at so and so many points of BLEU.
# Give the suspect three times as long, 900 steps, and look again.

# %%
print("steps:", result.curve("right-long", "held_out_loss")[0][-1])
for name in ("right-long", "forgotten-long"):
    report(name)
    steps = result.first_below(name, "train_loss", 0.1)
    print(f"{'':15}training loss below 0.1 after {steps.mean():.0f} steps")

# %% [markdown]
# The gap is gone, within the spread.
# Here the bug costs time and not quality: the loss gets to 0.1 in 237 steps instead of 127, and in the end both are there.
# A loss in BLEU belongs to one model, one budget and one task.
# The mechanism, one part drowning the other at the start, can be measured before any training.

# %% [markdown]
# ### See it live
#
# The same experiment in small, one seed, on your machine.
# Only the order of the losses is printed; the digits depend on the processor.

# %%
quick = lab.run("sqrt-d", size="quick", variants=["right", "forgotten", "both"])
loss = {name: quick.final(name, "held_out_loss").item() for name in quick.variants}
print("right below forgotten:", loss["right"] < loss["forgotten"])
print("right below both:     ", loss["right"] < loss["both"])

# %% [markdown]
# ## Two opposite pieces of advice
#
# "Multiply the embeddings by $\sqrt{d}$", one reads, and elsewhere "divide the table by $\sqrt{d}$".
# For words from $N(0, 1/d)$ both are right, one at a time:
#
# $$
# \sqrt{d}\,e + p = \sqrt{d}\,\bigl(e + p/\sqrt{d}\bigr).
# $$ (eq-same-ratio)
#
# The two sums have one ratio and differ by a common factor.
# A LayerNorm right after the sum removes that factor exactly.
# Follow both pieces of advice at once, and the ratio is off by $\sqrt d$ again, in the other direction.

# %%
words = word_vectors(512**-0.5)
multiplied, divided = sqrt(512) * words + table, words + table / sqrt(512)
norm = torch.nn.LayerNorm(512, eps=0.0, dtype=torch.float64)
print("same after LayerNorm:", torch.allclose(norm(multiplied), norm(divided)))
both = sqrt(512) * words + table / sqrt(512)
print("after both:", round((words.norm() * 512 / table.norm()).item(), 1), "to 1")

# %% [markdown]
# Our two controls show what happens where the sum is *not* normalised first: `small` is the divided form, and as good as `right` but for a little delay.
# So which advice should you take?
# Either, if it brings the two parts to similar size when training starts.
# For words from $N(0, 1)$ it is neither: they are in balance as they are.

# %% [markdown]
# ## What LayerNorm forgives
#
# LayerNorm brings every row to one size.
# Does it repair the ratio, too?
# Predict the share of the word after LayerNorm, for words of norm 1 and rows of norm 16.

# %%
def share_of_word(x, words):  # how much of x points along the word
    return torch.cosine_similarity(x, words, dim=1).square().mean().item()

for name, factor in [("forgotten", 1), ("right", sqrt(512))]:
    total = factor * words + table
    print(f"{name:10} before {share_of_word(total, words):.3f}"
          f"   after LayerNorm {share_of_word(norm(total), words):.3f}")

# %% [markdown]
# It forgives a common factor and does next to nothing about the ratio.
# (The small gain comes from the mean that it subtracts: a row of the table has a mean well above zero, a random word hardly any.)
# The place to act is before the sum.
#
# The code of {cite:t}`devlin2019` normalises the sum before the first layer.
# Its words and *learned* rows start with one and the same small standard deviation, 0.02, and so in balance.

# %% [markdown]
# ## Dropout, once, on the sum
#
# {cite:t}`vaswani2017` apply dropout to the sum, in section 5.4.
# Apply it to the words and again to the sum, and more is lost than you asked for.
# Predict the share of zeros for $p = 0.1$ twice.

# %%
pe_lab.seed(0)
drop = torch.nn.Dropout(0.1)
ones = torch.ones(400, 512)
once, twice = drop(ones), drop(drop(ones))
print("zeros, once: ", round((once == 0).float().mean().item(), 2))
print("zeros, twice:", round((twice == 0).float().mean().item(), 2))

# %% [markdown]
# Nine tenths pass each time, so $1 - 0.9^2 = 0.19$ of all entries are lost.
# One dropout, after the sum, is what the paper describes.

# %% [markdown]
# ## A pad is nowhere
#
# `nn.Embedding(padding_idx=0)` keeps the vector of the pad at zero.
# Then the table is added, and a zero word plus a place is a place.

# %%
padded = torch.nn.Embedding(100, 64, padding_idx=0)
ids = torch.tensor([[5, 9, 0, 0]])
x = pe_lab.Sinusoidal(64).embed(padded(ids), torch.arange(4))
print("norm of the pads' word vectors:", padded(ids)[0, 2:].norm(dim=1).tolist())
print("norms after adding the table:  ", [f"{n:.2f}" for n in x[0, 2:].norm(dim=1)])

# %% [markdown]
# Zeros would not help either: a key of zeros gets the score 0, and $e^0 = 1$ is not nothing.
# What keeps pads out is the attention mask.
# With it, real tokens cannot notice which word or which place a pad has.
# One reads that leaving positions off the pads harms training; to real tokens it makes no difference at all.

# %%
pe_lab.seed(0)
table_32 = pe_lab.Sinusoidal(32)
model = pe_lab.Transformer(100, 32, 4, 2, kind="encoder", encoding=table_32)
model = model.double().eval()
real = torch.tensor([[True, True, False, False]])
one = {"ids": torch.tensor([[5, 9, 0, 0]]), "positions": torch.tensor([0, 1, 2, 3])}
two = {"ids": torch.tensor([[5, 9, 7, 8]]), "positions": torch.tensor([0, 1, 90, 40])}
masked = (model(**one, mask=real) - model(**two, mask=real))[:, :2].abs().max()
bare = (model(**one) - model(**two))[:, :2].abs().max()
print("other pads, other places, with a mask, below 1e-12:", bool(masked < 1e-12))
print("without a mask, above 0.01:", bool(bare > 0.01))

# %% [markdown]
# ## Common mistakes
#
# **The factor on the sum.** `(e + p) * sqrt(d)` scales both parts: the ratio stays as bad as it was.
# The right line scales the words alone.

# %%
word, place, root = words[3].norm().item(), table[3].norm().item(), sqrt(512)
print("ratio, sum scaled: ", round((root * word) / (root * place), 3))
print("ratio, word scaled:", round(root * word / place, 2))

# %% [markdown]
# **The factor of the head.** $\sqrt{d_k}$ divides scores, $\sqrt{d_\text{model}}$ multiplies embeddings.
# They look alike and have nothing to do with each other: one is 8 and one 22.6 in the base model.

# %%
print("√d_k:", sqrt(64), " √d_model:", round(sqrt(512), 1))

# %% [markdown]
# **Tied output weights.** The embedding matrix may also be the output layer {cite:p}`press2017`.
# Then the stored vectors stay small, and the factor is applied at the input only.
# Multiplying the stored weights once, instead of each look-up, makes the logits $\sqrt d$ times larger.

# %%
stored = word_vectors(512**-0.5, rows=1000)
hidden = torch.randn(512, generator=torch.Generator().manual_seed(1)).double()
logits = {"at the input": stored @ hidden, "in the weight": root * stored @ hidden}
for where, values in logits.items():
    print(f"factor {where:14} spread of logits {values.std().item():.1f}")

# %% [markdown]
# ## Compare with real code
#
# `pe_lab.Transformer` draws embeddings from $N(0, 1/d)$ and multiplies by $\sqrt d$, unless told otherwise: `embedding_std`, `embedding_scale`.
# A model assembled from PyTorch's parts has `nn.Embedding` and no factor.
# Both are balanced, as {numref}`fig-add-norms` said.

# %%
pe_lab.seed(0)
tokens = torch.arange(1000)[None]
ours = pe_lab.Transformer(1000, 512, 8, 1).embed(tokens)
theirs = torch.nn.Embedding(1000, 512)(tokens)
for name, x in [("pe_lab", ours), ("nn.Embedding", theirs)]:
    print(f"{name:13} norm {x.norm(dim=-1).mean().item():.1f}, table 16")

# %% [markdown]
# Put the two habits together, PyTorch's layer and the paper's factor, and you have `both`, the disaster of {numref}`fig-add-seven`.
# It is an easy mistake: each half is right where it comes from.
#
# ## Exercises
#
# Each stub runs as it is.
# Replace the dots, run the cell, and `check` names the kind of mistake if there is one.

# %% [markdown]
# `````{exercise} The sum, with its factor ★
# :label: ex-07-join
#
# `words` is (L, d), drawn from $N(0, 1/d)$. Write `join(words)`: the input of the first layer, as {cite:t}`vaswani2017` mean it,
# for positions $0 \dots L - 1$. You may use `pe_lab.sinusoidal`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Two numbers decide: the norm of a word, about 1, and that of a row of the table, $\sqrt{d/2}$.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Section 3.4 of the paper multiplies the words.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# The factor is $\sqrt d$ with $d$ the width, `words.shape[1]`.
# ````
# `````

# %% tags=["exercise"]
def join(words):
    """√d · words + PE."""
    ...


pe_lab.check("07-join", join)
# %% [markdown]
# ````{solution} ex-07-join
# :class: dropdown
#
# ```python
# def join(words):
#     """√d · words + PE."""
#     length, width = words.shape
#     return width**0.5 * words + pe_lab.sinusoidal(length, width, dtype=words.dtype)
#
#
# pe_lab.check("07-join", join)
# ```
# ````

# %% [markdown]
# `````{exercise} Whose energy is it? ★
# :label: ex-07-share
#
# Write `share(words, table)`: the mean squared norm of the words, over the sum of that of the words and that of the rows of the table.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Energy is the squared norm: a sum of squares over channels.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The two may have different numbers of rows, so take means first.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `x.square().sum(dim=1).mean()`, twice.
# ````
# `````

# %% tags=["exercise"]
def share(words, table):
    """The words' part of the energy."""
    ...


pe_lab.check("07-share", share)
# %% [markdown]
# ````{solution} ex-07-share
# :class: dropdown
#
# ```python
# def share(words, table):
#     """The words' part of the energy."""
#     word, place = (x.square().sum(dim=1).mean() for x in (words, table))
#     return word / (word + place)
#
#
# pe_lab.check("07-share", share)
# ```
# ````

# %% [markdown]
# `````{exercise} Four terms ★★
# :label: ex-07-terms
#
# Write `terms(e_m, p_m, e_n, p_n)`: the four terms of {eq}`eq-four`, in that order, as one tensor.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Each term is the inner product of a part of token $m$ and a part of token $n$.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The order is word–word, word–place, place–word, place–place; the first word of each belongs to $m$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `torch.stack` makes one tensor of four numbers. Check that their sum is the score.
# ````
# `````

# %% tags=["exercise"]
def terms(e_m, p_m, e_n, p_n):
    """Word–word, word–place, place–word, place–place."""
    ...


pe_lab.check("07-terms", terms)
# %% [markdown]
# ````{solution} ex-07-terms
# :class: dropdown
#
# ```python
# def terms(e_m, p_m, e_n, p_n):
#     """Word–word, word–place, place–word, place–place."""
#     return torch.stack((e_m @ e_n, e_m @ p_n, p_m @ e_n, p_m @ p_n))
#
#
# pe_lab.check("07-terms", terms)
# ```
# ````

# %% [markdown]
# `````{exercise} Addition inside concatenation ★★
# :label: ex-07-tie
#
# A layer has the weight $W$ of shape (out, d) and reads $e + p$.
# Write `tie(weight)`: the weight of shape (out, 2d) of a layer that reads $[e; p]$ and gives the same.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# The first $d$ columns meet $e$, the others meet $p$.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# {prf:ref}`prop-tied` says what the two blocks are.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `torch.cat` along the axis of columns.
# ````
# `````

# %% tags=["exercise"]
def tie(weight):
    """[W, W]."""
    ...


pe_lab.check("07-tie", tie)
# %% [markdown]
# ````{solution} ex-07-tie
# :class: dropdown
#
# ```python
# def tie(weight):
#     """[W, W]."""
#     return torch.cat((weight, weight), dim=1)
#
#
# pe_lab.check("07-tie", tie)
# ```
# ````

# %% [markdown]
# `````{exercise} A pad is nowhere ★★★
# :label: ex-07-pad
#
# Write `embed(ids, weight, pad)` for one sequence of token ids (L,): scaled words plus positions for real tokens,
# and rows of zeros where the id is `pad`. Padding may be anywhere, and its row of `weight` need not be zero. Positions count all places from 0.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Make the sum for all tokens first. What is left to do?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Zeroing the *word* of a pad is not enough; see the section above.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Multiply by `(ids != pad)[:, None]`, after adding.
# ````
# `````

# %% tags=["exercise"]
def embed(ids, weight, pad):
    """√d · weight[ids] + PE for tokens, zeros for padding."""
    ...


pe_lab.check("07-pad", embed)
# %% [markdown]
# ````{solution} ex-07-pad
# :class: dropdown
#
# ```python
# def embed(ids, weight, pad):
#     """√d · weight[ids] + PE for tokens, zeros for padding."""
#     width = weight.shape[1]
#     table = pe_lab.sinusoidal(len(ids), width, dtype=weight.dtype)
#     rows = width**0.5 * weight[ids] + table
#     return rows * (ids != pad)[:, None]
#
#
# pe_lab.check("07-pad", embed)
# ```
# ````

# %% [markdown]
# ## Quiz
#
# 1. You use `nn.Embedding` as it is and a sinusoidal table at $d = 512$. Should you multiply by $\sqrt d$?
#    (a) yes, the paper does; (b) no, the norms are 22.6 and 16 already; (c) it makes no difference before LayerNorm.
#
# ````{admonition} Answer 1
# :class: dropdown
# **b.** Not a: the paper's code starts from other embeddings. Not c: LayerNorm keeps the ratio of the parts, whatever it is.
# ````
#
# 2. Concatenation, compared with addition: (a) keeps words and places apart in all scores; (b) contains addition as a special case;
#    (c) breaks residual connections.
#
# ````{admonition} Answer 2
# :class: dropdown
# **b.** With both blocks equal, if it is of twice the width. Not a: the weights mix both parts. Not c: residuals need one width within the stack,
# and the concatenated vector has one.
# ````

# %% [markdown]
# 3. A loss curve is late by some hundred steps. What is the first thing to measure? (a) the learning rate; (b) the norms of the two parts of the input sum;
#    (c) the final BLEU.
#
# ````{admonition} Answer 3
# :class: dropdown
# **b.** Two numbers, no training. Not a: it may hide the cause. Not c: in the end the gap may be gone, and the time spent all the same.
# ````
#
# 4. "$\lVert PE(p)\rVert$ is the same everywhere, so it cannot drown the words." (a) true; (b) false, it is constant and may be large;
#    (c) false, it grows with $p$.
#
# ````{admonition} Answer 4
# :class: dropdown
# **b.** Constant at 16 beside words of norm 1. Not a: constancy says nothing about size. Not c: the norm is $\sqrt{d/2}$ at every position.
# ````

# %% [markdown]
# ## Take-away
#
# - Measure the ratio of word to place when training starts. $\sqrt d$ belongs to $N(0, 1/d)$, and not to PyTorch's $N(0, 1)$.
# - In our runs, words that were too small made the model late; words that were too large drowned the places, and that was worse.
# - Adding is concatenating with tied weights. With few symbols concatenation learned better; with many words we saw no difference.
# - Dropout once, on the sum; a mask for pads; and LayerNorm forgives a common factor, not a ratio.
#
# {numref}`fig-add-triangle` shows the healthy sum and the suspect.

# %% mystnb={"figure": {"name": "fig-add-triangle", "caption": "A word (grey) and a place (green) are nearly perpendicular, and the sum is the diagonal. Healthy: the sum leans on both. Forgotten factor: it is almost the place alone."}, "image": {"alt": "Two right-angled triangles at the same scale; in the first both legs are long, in the second the word's leg is a small fraction of the place's leg."}}
with plots.figure(2, size=(6.8, 2.8), sharey=True) as (fig, axes):
    pairs = {"with √d": norms["paper's factor, N(0, 1/d)"], "forgotten": 1.0}
    for ax, (title, word) in zip(axes, pairs.items(), strict=True):
        ax.plot([0, word], [0, 0], color=plots.color("content"), lw=4)
        ax.plot([word, word], [0, 16], color=plots.color("position"), lw=4)
        ax.plot([0, word], [0, 16], color=plots.color("highlight"), lw=2, ls="--")
        ax.set(title=title, aspect="equal", xlim=(-2, 30), ylim=(-2, 18))
        ax.text(word + 0.8, 8, "place", color=plots.color("position"), va="center")
        ax.text(word / 2, -1.6, "word", color=plots.color("content"), ha="center")
fig

# %% [markdown]
# ## Further reading
#
# - {cite:t}`vaswani2017`: the factor in section 3.4, the sum in section 3.5, dropout on the sum in section 5.4.
# - {cite:t}`ke2021`: argue that the cross terms of {eq}`eq-four` are noise, and give words and places weights of their own.
# - {cite:t}`press2017`: why the output layer may share the embedding matrix, as that of the original Transformer does.
# - {cite:t}`devlin2019`: words, learned positions and segments in one sum.
# - {cite:t}`xiong2020`: what the place of LayerNorm does to the start of training.
# - {cite:t}`post2018`: how BLEU has to be reported so that it can be compared.

# %% tags=["nbval-ignore-output"] reason="versions and processors differ from machine to machine"
pe_lab.provenance()
