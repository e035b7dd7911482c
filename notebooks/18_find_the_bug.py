# %% [markdown]
# (ch-bugs)=
# # Find the bug
#
# :::{div} strip
# 60 minutes to read · under 25 s of CPU · you need {ref}`ch-tables`, {ref}`ch-rotate` and {ref}`ch-add`.
# :::
#
# **You will be able to**
#
# - say where a bug hides from a test, and probe there ({ref}`ex-18-case-1`, {ref}`ex-18-case-2`)
# - tell kinds of bugs apart by what they change ({ref}`ex-18-case-3`, {ref}`ex-18-case-4`, {ref}`ex-18-case-5`)
# - clear a suspect that is healthy, if there is one ({ref}`ex-18-case-6`, {ref}`ex-18-case-7`, {ref}`ex-18-case-8`)
# - write a test that fails when it should ({ref}`ex-18-order`)
# - put a module of your own on the table of `pe_lab.diagnose` ({ref}`ex-18-adapt`).

# %% [markdown]
# ## Four green tests
#
# A colleague ports a rotary encoding.
# Its angles are those of {ref}`ch-rotate`, computed in float64; each pair of channels is turned by its angle.
# He tests four things: the shape, the lengths of vectors, position 0, and that scores depend on offsets alone.

# %%
import torch
import pe_lab

torch.set_num_threads(1)

def turn(x, angles):  # pairs of channels (0, d/2), (1, d/2 + 1), …
    cos, sin = (torch.cat((t, t), -1) for t in (angles.cos(), angles.sin()))
    left, right = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-right, left), -1) * sin).to(x.dtype)

def port(x, positions):  # x: (B, H, L, D)
    return turn(x, positions[:, None] * pe_lab.inv_freq(x.shape[-1]))

# %%
def close(a, b):
    return torch.allclose(a, b, rtol=0, atol=1e-9)

def four_tests(f, length=8, width=4):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, length, width, generator=rng, dtype=torch.float64)
    y, later = (f(x, torch.arange(length) + shift) for shift in (0, 100))
    print("same shape:         ", y.shape == x.shape)
    print("lengths are kept:   ", close(y.norm(dim=-1), x.norm(dim=-1)))
    print("position 0 is fixed:", close(y[:, :, 0], x[:, :, 0]))
    print("offsets alone count:", close(y @ y.mT, later @ later.mT))

four_tests(port)

# %% [markdown]
# All green.
# Then he loads a checkpoint, and the model writes gibberish from the second word on.
# The checkpoint was trained with *adjacent* pairs.
# Predict in which of the four tests the trained rotation differs from the port, and where the vector $(1, 0, 0, 0)$ goes at position 1.

# %%
def trained(x, positions):
    rope = pe_lab.RoPE(x.shape[-1], layout="interleaved")
    return rope.rotate(x, x, positions, positions)[0]

four_tests(trained)
unit = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)[None, None, None]
for f in (port, trained):
    print(f.__name__, f(unit, torch.tensor([1])).flatten().round(decimals=3).tolist())

# %% [markdown]
# In none of the four.
# Both are proper rotations, and they agree wherever he looked.
# The last two lines ask another question, *which two channels mix?*, and it is one that the port cannot pass by accident.
#
# Tests fail to find bugs less for want of rigour than for want of the right place.
# This chapter is about places.

# %% [markdown]
# ## A doctor who looks from outside
#
# `pe_lab.diagnose` calls an encoding as a black box, reads from its answers what it is, and looks for bugs where they hide.
# Here it meets the port, and is told what the checkpoint expects.
# The kinds of subject, and how each is called, are in the table of {ref}`sec-bugs-own`.

# %%
from textwrap import fill

def ask(subject, kind, **options):
    report = pe_lab.diagnose(subject, kind=kind, **options)
    bad = [f for f in report.findings if f.severity in ("wrong", "risky")]
    for finding in bad:
        print(fill(str(finding), 84, subsequent_indent="  "))
    if not bad:
        print("nothing wrong; this is", report.identity["scheme"])

ask(port, "rope", expected={"layout": "interleaved"})

# %% [markdown]
# The sign says how bad it is, ✗ for wrong and ! for risky; then comes the check, and then the evidence.
# Told no width, the doctor asked for heads of 64 channels.
# A report also holds what the subject *is*, and how to mend what was found.

# %%
report = pe_lab.diagnose(port, kind="rope", expected={"layout": "interleaved"})
for fact in ("layout", "rotary_dim", "base", "scaling"):
    print(f"{fact:11}", report.identity[fact])
print(fill("mend: " + report.findings[0].remedy, 84))

# %% [markdown]
# Not told what to expect, the doctor would have said that the port is a healthy rotation with half-split pairs.
# That is true.
# A convention is wrong only beside a partner: here, beside weights.
# They can be mended instead of the code, since the two layouts differ by the order of the rows of $W_Q$ and $W_K$.

# %%
rng = torch.Generator().manual_seed(1)
w_q, w_k = torch.randn(2, 4, 4, generator=rng, dtype=torch.float64)
x = torch.randn(1, 1, 8, 4, generator=rng, dtype=torch.float64)
at = torch.arange(8)

def scores(f, w_q, w_k):
    return f(x @ w_q.T, at) @ f(x @ w_k.T, at).mT

right = scores(trained, w_q, w_k)
moved = [pe_lab.convert_layout(w, 1, frm="interleaved", to="half") for w in (w_q, w_k)]
print("as loaded, equal:     ", close(scores(port, w_q, w_k), right))
print("one converted, equal: ", close(scores(port, moved[0], w_k), right))
print("both converted, equal:", close(scores(port, *moved), right))

# %% [markdown]
# ## Seven places to hide
#
# We collected 67 such bugs from public reports; the {ref}`ch-bug-index` has all of them.
# Each of them works somewhere, and that is how it got in.
# Sorted by what the test *did not vary*, they fall into seven families.
# The rest of this chapter visits each, with a live specimen.
#
# | The bug is invisible … | because the test has | so probe |
# |---|---|---|
# | at position 0 | one position, or the first | positions in the middle, and not from 0 |
# | on squares and powers of two | L = H, 8 heads, a square image | sizes that all differ: 6 heads, a 2 × 3 grid |
# | in short texts | ten tokens | thousands, and past the trained length |
# | in a batch of one | one row, or rows of one length | ragged rows, padded left |
# | after the softmax | constant rows, tiny biases | the scores as well as the weights |
# | in the first call | one call | a short, a long, and the short one again |
# | on this path | the full pass | decoding, caching, casting, loading |

# %% [markdown]
# ## Position 0 agrees
#
# The layout was of this family, and here is its cousin.
# Some models turn only a part of each head: four channels of eight, say.
# Then the ladder of frequencies has to run over the *four*.
# In `partial`, `over` says over how many it runs.
# Predict what the four tests say to each version.

# %%
def partial(x, positions, over):
    moving, still = x.chunk(2, dim=-1)
    pairs = torch.arange(0, moving.shape[-1], 2).double()
    angles = positions[:, None] * 10000 ** (-pairs / over)
    return torch.cat((turn(moving, angles), still), -1)

def wrong(x, positions):
    return partial(x, positions, over=x.shape[-1])  # the whole head

def right(x, positions):
    return partial(x, positions, over=x.shape[-1] // 2)  # the part that turns

# %%
four_tests(wrong, width=8)
for f in (wrong, right):
    moved = f(torch.eye(8).double()[None, None, [1]], torch.tensor([1]))
    print(f"{f.__name__:6} channel 1 turns by {moved[0, 0, 0, 1].acos():.2f}")

# %% [markdown]
# Green again, and yet the second pair turns ten times too fast.
# What finds it is the angle of *each pair that moves*, measured on vectors and not read off a table:
# in {ref}`one public report <bug-wrong-partner>` the tables matched to the byte, and what was applied did not.

# %%
ask(wrong, "rope")
ask(right, "rope", expected={"rotary_dim": 32})

# %% [markdown]
# ## Squares and powers of two
#
# ALiBi's slopes for 8 heads are $2^{-1}, 2^{-2}, \dots, 2^{-8}$.
# For a number of heads that is no power of two, the released code takes the slopes of the power below, and fills up with every other one of the power above.
# Many ports apply the formula that holds for 8 heads, $2^{-8h/H}$ for head $h$ of $H$, to any number.
# Predict for which of these head counts that goes unnoticed.

# %%
def formula(num_heads):
    return torch.tensor([2 ** (-8 * h / num_heads) for h in range(1, num_heads + 1)])

for heads in (2, 4, 6, 8, 12, 16):
    same = torch.allclose(formula(heads), pe_lab.alibi_slopes(heads).float())
    print(f"{heads:2} heads: {'equal' if same else 'different'}")

# %%
print("formula: ", [f"{slope:.4f}" for slope in formula(6)])
print("released:", [f"{slope:.4f}" for slope in pe_lab.alibi_slopes(6)])
ask(formula, "slopes")
ask(pe_lab.alibi_slopes, "slopes")

# %% [markdown]
# The two agree at powers of two, so a test at 8 heads cannot tell them apart.
# The released slopes for 6 heads are not even sorted; that is on purpose, and no bug.
# A model *trained* with the formula is none either, so the doctor calls it risky, not wrong.

# %% [markdown]
# Images have squares.
# The usual image in a test is as high as it is wide, and a swap of the two numbers leaves no trace.
# In raster order, row after row, cell $n$ of a grid lies in row $n \mathbin{//} \text{width}$.
# Predict what `n // height` does to a grid of three by three, and to one of two by three.

# %%
def cells(height, width, side):
    n = torch.arange(height * width)
    return n // side, n % side

for height, width in [(3, 3), (2, 3)]:
    for name, side in [("wrong", height), ("right", width)]:
        row, column = (t.tolist() for t in cells(height, width, side))
        print(f"{height}×{width} {name}: rows {row}, columns {column}")

# %%
def grid(height, width, d_model, side):
    row, column = cells(height, width, side)
    return torch.cat([pe_lab.sinusoidal(p, d_model // 2) for p in (row, column)], -1)

ask(lambda h, w, d: grid(h, w, d, side=h), "table", axes=(2, 3))
ask(lambda h, w, d: grid(h, w, d, side=w), "table", axes=(2, 3))

# %% [markdown]
# ## Short texts
#
# Many models run in bfloat16, a 16-bit number with 8 significant bits.
# Somewhere in the code the position or the frequency is cast along.
# In `narrow` it is the line with the angle; `wide` keeps the angle in float32 and casts the result.
# Predict the position from which `narrow` goes wrong, from the integers that the first cell prints.

# %%
print(torch.tensor([255.0, 256, 257, 258, 259]).bfloat16().tolist())

def narrow(x, positions):
    w = pe_lab.inv_freq(x.shape[-1])
    return turn(x, positions[:, None].to(x.dtype) * w.to(x.dtype))

def wide(x, positions):
    return turn(x, positions[:, None].float() * pe_lab.inv_freq(x.shape[-1]).float())

# %%
def worst(f, position, width=64):
    x = torch.ones(1, 1, 1, width, dtype=torch.float64)
    exact = port(x, torch.tensor([position]))
    got = f(x.bfloat16(), torch.tensor([position])).double()
    return (got - exact).abs().max().item()

for p in (2, 8, 32, 128, 257, 1857):
    print(f"position {p:4}: narrow {worst(narrow, p):.2f}, wide {worst(wide, p):.2f}")

# %% [markdown]
# Up to 256 there is no cliff.
# The error grows with the *angle*, so the fast pairs go first, and in a text of ten tokens it is a matter of rounding.
# Past 256 not every integer exists: 257 becomes 256, and the fastest pair is a whole radian late.
# The right line costs nothing: angles in float32 or wider, cosines cast at the end.

# %%
ask(narrow, "rope")
ask(wide, "rope")

# %% [markdown]
# Rules that stretch the context hide in short texts, too.
# Llama 3.1 slows its slow pairs by 8, leaves the fast ones, and blends between.
# A loader that skips the rule passes every short prompt.
# Here is the largest angle by which some pair is then off.

# %%
plain = pe_lab.inv_freq(128, base=5e5)
rule = pe_lab.scaling.llama3(plain, 8.0, original_length=8192)
print("pairs kept:", (rule == plain).sum().item(), "of", len(plain))
for p in (10, 100, 1000, 8000):
    print(f"position {p:4}: off by up to {(p * (plain - rule)).max():.2f} radians")

# %% [markdown]
# ## A batch of one
#
# Two prompts, of two and of four tokens, padded on the left to four.
# A loop asks for the next token's position, and takes the length of the cache: one number for the whole batch.
# Predict the right numbers, and say which row suffers.

# %%
mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]).bool()
print("wrong:", [mask.shape[1]] * 2)
print("right:", mask.sum(dim=1).tolist())
print("right for the prompt itself:")
print(pe_lab.positions.from_mask(mask))

# %% [markdown]
# The longest row is served well, so a batch of one is always served well.
# Does it matter? That depends on the scheme, and on the prompt.
# If pads were counted there, too, all real tokens of the short row are shifted by the same two places.
# If not, the new tokens alone are.
# Predict which of the two encodings below notices the first, and which the second.

# %%
rows = torch.randn(2, 1, 1, 2, 8, generator=rng, dtype=torch.float64)
table = pe_lab.sinusoidal(9, 8, dtype=torch.float64)
for name, f in [("rotary", port), ("added", lambda x, p: x + table[p])]:
    q, k = (f(t, torch.arange(2)) for t in rows)
    q_late, k_late = (f(t, torch.arange(2) + 2) for t in rows)
    both, alone = (close(q @ k.mT, q_late @ t.mT) for t in (k_late, k))
    print(f"{name:6} scores unchanged: all shifted {both}, queries alone {alone}")

# %% [markdown]
# A rotation forgives a shift of all, a table of absolute rows does not, and neither forgives a shift of some.
# So the same wrong loop is harmless in one model and silently wrong in the next.
# Here the loop goes around two models that differ in their scheme alone.

# %%
def counts_pads(encoding):
    pe_lab.seed(0)
    model = pe_lab.Transformer(50, 32, 4, 2, encoding=encoding).eval()

    def loop(ids, mask=None):
        return model(ids, positions=torch.arange(ids.shape[1]), mask=mask)

    return loop

ask(counts_pads(pe_lab.Learned(512, 32)), "model", vocab_size=50)
ask(counts_pads(pe_lab.RoPE(8)), "model", vocab_size=50)

# %% [markdown]
# The second specimen *has* a batch, and takes it for the text.
# Its table is (max_len, 1, d) and its text (B, L, d).
# Predict what token $t$ of row $b$ receives.

# %%
class AlongBatch(torch.nn.Module):
    def __init__(self, d_model=32, axis=0):
        super().__init__()
        self.axis = axis
        self.register_buffer("pe", pe_lab.sinusoidal(512, d_model)[:, None])

    def forward(self, x):
        rows = self.pe[: x.shape[self.axis]]  # axis 0 counts texts, axis 1 tokens
        return x + (rows if self.axis == 0 else rows.transpose(0, 1))

# %%
def rows_read(f, batch, length):
    added = f(torch.zeros(batch, length, 32))
    return torch.cdist(added, pe_lab.sinusoidal(9, 32)).argmin(-1).tolist()

for axis, name in [(0, "wrong"), (1, "right")]:
    for batch in (1, 2):
        print(name, "batch of", batch, rows_read(AlongBatch(axis=axis), batch, 3))

# %%
ask(AlongBatch(axis=0), "add", d_model=32)
ask(AlongBatch(axis=1), "add", d_model=32)

# %% [markdown]
# No error, no warning, and with a batch of one the first token is right.
# It has {ref}`more reports <bug-along-batch>` than most: tables made for (L, B, d) outlived the habit of putting tokens first.
# The right test permutes tokens and sees the output change, then permutes *texts* and sees it unchanged.

# %% [markdown]
# ## What softmax forgives
#
# Softmax ignores a number that is added to a whole row of scores.
# Two queries meet five keys: the queries are tokens 3 and 4.
# `wrong` takes them for tokens 0 and 1.
# Predict for which of the two biases it matters: ALiBi's $m(j - i)$, or the two-sided $-m\,|i - j|$.

# %%
keys, slope = torch.arange(5), torch.tensor([0.5], dtype=torch.float64)
places = {"wrong": torch.arange(2), "right": torch.arange(2) + 3}
for name, symmetric in [("m(j − i)", False), ("−m|i − j|", True)]:
    bias = [pe_lab.alibi_bias(q, keys, slope, symmetric=symmetric)
            for q in places.values()]
    weights = [b.softmax(dim=-1) for b in bias]
    print(f"{name:9} scores differ by {(bias[0] - bias[1]).abs().max():.1f},",
          f"weights by {(weights[0] - weights[1]).abs().max():.2f}")

# %% [markdown]
# For the first, each row is off by a constant, and nothing happens.
# Such a difference {ref}`was taken for a bug <bug-alignment>`, and was none.
# For the second the same line is wrong.
# So compare scores *and* weights: the one to see a difference, the other to see whether it matters.

# %%
def two_sided(q_len, k_len, late):
    q = torch.arange(q_len) + (k_len - q_len if late else 0)
    return pe_lab.alibi_bias(q, torch.arange(k_len), pe_lab.alibi_slopes(4),
                             symmetric=True)

ask(lambda q, k: two_sided(q, k, late=False), "bias")
ask(lambda q, k: two_sided(q, k, late=True), "bias")

# %% [markdown]
# What softmax forgives in exact arithmetic, 16 bits may not.
# Since constants cancel, some code adds $m\,j$ instead of $m(j - i)$.
# Predict how far the two lie apart in bfloat16, at the last query of a long text.

# %%
for length in (64, 1024, 4096):
    j = torch.arange(length, dtype=torch.float64)
    exact = (0.5 * j).softmax(-1)
    for name, bias in [("m j", 0.5 * j), ("m(j − i)", 0.5 * (j - length + 1))]:
        off = (bias.bfloat16().double().softmax(-1) - exact).abs().max()
        print(f"length {length:4}  {name:8} weights off by {off:.3f}")

# %% [markdown]
# ## The first call
#
# To save time, a rotation keeps its tables, by the number of tokens.
# In decoding, every step has one token.
# Predict the angle that the second step gets.

# %%
class Keeps(torch.nn.Module):
    def __init__(self, by_place=False):
        super().__init__()
        self.kept, self.by_place = {}, by_place

    def forward(self, x, positions):
        key = tuple(positions.tolist()) if self.by_place else len(positions)
        if key not in self.kept:
            self.kept[key] = positions[:, None] * pe_lab.inv_freq(x.shape[-1])
        return turn(x, self.kept[key])

# %%
one = torch.tensor([1.0, 0], dtype=torch.float64)[None, None, None]
for by_place in (False, True):
    f = Keeps(by_place)
    steps = [f(one, torch.tensor([p])).flatten().tolist() for p in (0, 3)]
    print("key: positions" if by_place else "key: length   ",
          [[round(value, 3) for value in step] for step in steps])

# %% [markdown]
# Each *single* call of a fresh module is right; the second call of one module is not.
# The simplest mend is to keep nothing; `pe_lab` does that.
# Whoever tests with a new module in each test never sees this family, which is why the doctor asks short, long, and short again.

# %%
four_tests(Keeps())
ask(Keeps(), "rope")
ask(Keeps(by_place=True), "rope")

# %% [markdown]
# Look again at the four tests: green, and the last one for a bad reason.
# It asks for eight positions from 0 on, then for eight from 100 on, and gets the same angles twice.
# Of course the scores agree.
# A test that compares two answers has to know that they *should* differ.

# %% [markdown]
# ## The other path
#
# The full pass is tested, and the model decodes on another path.
# `by_queries` builds ALiBi's bias over the queries, in the belief that there are as many keys.
# In the full pass there are.
# Predict what it gives for one query and four keys.

# %%
slopes = pe_lab.alibi_slopes(2)[:, None, None]

def by_queries(q_len, k_len):
    n = torch.arange(q_len)
    return slopes * (n[None, :] - n[:, None])

def by_both(q_len, k_len):
    i, j = torch.arange(q_len) + k_len - q_len, torch.arange(k_len)
    return slopes * (j[None, :] - i[:, None])

# %%
for f in (by_queries, by_both):
    full = (torch.zeros(4, 4) + f(4, 4)[0])[-1]
    step = (torch.zeros(1, 4) + f(1, 4)[0])[-1]
    print(f"{f.__name__:10} full pass {full.tolist()}, step {step.tolist()}")

# %%
ask(by_queries, "bias")
ask(by_both, "bias")

# %% [markdown]
# One number, zero, is spread over all keys, and decoding has no positions at all.
# The rule for this family: whatever a step computes has to equal the last row of the full pass, for every layer, for a prompt longer than one token.

# %% [markdown]
# ## The √d bug, seen by a doctor
#
# In {ref}`ch-add` a model learned late, because its words were too small beside the table.
# Three clues and seven trainings led to the culprit.
# A doctor has no baseline, no training, and no access to the line of code.
# Here are four front ends, which take word vectors of width 512 and return the input of the first layer.

# %%
from math import sqrt

d = 512
table = pe_lab.sinusoidal(64, d, dtype=torch.float64)
fronts = {
    "right": lambda words: sqrt(d) * words + table,
    "forgotten": lambda words: words + table,
    "on the sum": lambda words: sqrt(d) * (words + table),
    "twice": lambda words: sqrt(d) * sqrt(d) * words + table,
}

# %% [markdown]
# First, what does *not* show it.
# These are the usual tests of a front end: shape, finite values, order, gradients.
# Predict the score of each.

# %%
words = torch.randn(64, d, generator=rng, dtype=torch.float64) / sqrt(d)

def usual_tests(f):
    x = words.clone().requires_grad_()
    y = f(x)
    y.sum().backward()
    back = f(words.flip(0)).flip(0)
    return [y.shape == x.shape, y.isfinite().all().item(),
            not close(y, back), bool(x.grad.abs().min() > 0)]

for name, f in fronts.items():
    print(f"{name:11}", usual_tests(f))

# %% [markdown]
# All green, for all.
# Now the doctor's way: two questions to the black box, none of them a training.
# Ask with *zero* words, and what comes back is the place's part.
# Ask with the words, take that part off, and what is left is the word's part, with whatever factor it met.
# How do the two compare?

# %%
def parts(f, words):
    place = f(torch.zeros_like(words))
    word = f(words) - place
    return [part.square().mean().sqrt().item() for part in (word, place)]

for name, f in fronts.items():
    word, place = parts(f, words)
    print(f"{name:11} word {word:7.3f}  place {place:7.3f}  ratio {word / place:7.3f}")

# %% [markdown]
# On day one, before the first step, the ratio says what the loss curve would say after hundreds of steps, if you had a healthy one beside it.
# A healthy start is near 1, here 1.418; without the factor it is lower by $\sqrt{512}$, and scaling the sum does not change it.
# The story that is told about this bug puts numbers on the damage, and gives no data; what holds is the mechanism.

# %% mystnb={"figure": {"name": "fig-bugs-ratio", "caption": "One number, measured without training: root mean square of the word's part over that of the place's part. The line marks equal parts."}, "image": {"alt": "Four horizontal bars on a logarithmic axis with a vertical line at one. The bar of right ends a little above one, forgotten and on the sum end far below, twice far above."}}
from pe_lab import plots

ratios = [word / place for word, place in (parts(f, words) for f in fronts.values())]
fig = plots.bars(list(fronts), ratios, xlog=True, colors="content",
                 xlabel="word's part over place's part", size=(6.8, 2.4))
fig.axes[0].axvline(1, color=plots.color("position"), lw=2)
fig

# %% [markdown]
# The doctor asks the same two questions, if you say how the embeddings were drawn.
# (Only the module is examined, and how large its input will be is not written in it.)

# %%
def front_end(factor):
    return lambda x: factor * x + pe_lab.sinusoidal(x.shape[-2], d).to(x)

for factor in (1, sqrt(d), d):
    ask(front_end(factor), "add", d_model=d, embedding_std=1 / sqrt(d))

# %% [markdown]
# Look at {numref}`fig-bugs-ratio` when a model of yours seems slow.
# The same two questions find a code that is not there (the place's part is 0), and one that is added twice.
# Dropout needs train mode and a third question: of ones that go in, which share comes out as zeros?
# Once at $p = 0.1$ it is a tenth, and {ref}`ch-add` works out what it is for twice.

# %% [markdown]
# ## The wrong test and the right test
#
# Checklists for positional encodings are passed on from article to article.
# Some of their items fail on healthy code, and some pass on broken code, which is worse.
# We run the best known ones: each against an encoding with a bug, together with a test that sees it.

# %% [markdown]
# ### The isolation test
#
# "Train one layer to map [A, B, C] to [0, 1, 2]. If it does not get all right, the encoding is broken."
# Predict what a model *without any* encoding scores.

# %%
from itertools import permutations

def place_accuracy(x, encoding, steps=150):
    pe_lab.seed(0)
    model = pe_lab.Transformer(3, 16, 2, 1, kind="encoder", encoding=encoding)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    place = torch.arange(3).expand(len(x), -1)
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(x).mT, place)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (model(x).argmax(-1) == place).double().mean().item()

# %%
as_written = torch.tensor([[0, 1, 2]])
shuffled = torch.tensor(list(permutations(range(3))))
for name, texts in [("[A, B, C]", as_written), ("shuffled", shuffled)]:
    none = place_accuracy(texts, None)
    some = place_accuracy(texts, pe_lab.Sinusoidal(16))
    print(f"{name:10} no encoding {none:4.0%}, sinusoids {some:4.0%}")

# %% [markdown]
# The label can be read off the token: A is always first.
# Shuffle the tokens, or make them all equal, and a model without positions has to guess: one in three.
# Now the test passes for the encoding and fails without it.

# %% [markdown]
# ### The gradient test
#
# "Use `gradcheck` to see that the learned table receives gradients."
# `stuck` always reads row 0, because its position ids are zeros.
# Predict `gradcheck`'s verdict.

# %%
def stuck(rows):
    return rows[torch.zeros(4, dtype=torch.long)]

rows = torch.randn(4, 2, generator=rng, dtype=torch.float64, requires_grad=True)
print("gradcheck passes:", torch.autograd.gradcheck(stuck, (rows,)))
stuck(rows).square().sum().backward()
print("rows with a gradient:", (rows.grad.abs().sum(dim=1) > 0).tolist())

# %% [markdown]
# `gradcheck` compares analytic with numeric derivatives of a function.
# Where both are zero it is content; it proves nothing about who is trained.
# Look at `.grad` after `backward`, row by row, for every position that the batch contains: `None` and zeros are the alarm.

# %% [markdown]
# ### The heat map
#
# "A healthy table has no large uniform areas: those are lost information."
# And: "with position and channel exchanged you see vertical stripes, and the low channels are alike everywhere."
# Predict how many of the 512 columns of a *healthy* table hardly vary over 100 rows.

# %%
healthy = pe_lab.sinusoidal(100, d, dtype=torch.float64)
pair, p = torch.arange(d // 2).double(), torch.arange(100).double()
angles = pair[None, :] / 10000 ** (2 * p[:, None] / d)  # the two are exchanged
swapped = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
for name, pe in [("healthy", healthy), ("swapped", swapped)]:
    still = (pe.std(dim=0) < 0.05).sum().item()
    constant = (pe.std(dim=0) < 1e-9).sum().item()
    print(f"{name} columns with a spread below 0.05: {still}, constant: {constant}")
print("all rows of the swapped table differ:", len(swapped.unique(dim=0)) == 100)

# %% mystnb={"figure": {"name": "fig-bugs-maps", "caption": "The healthy table (left) and one with position and channel exchanged (right), 100 positions and 512 channels. The healthy one has the large uniform area."}, "image": {"alt": "Two heat maps. Left: waves in the first third of the columns, stripes of one colour in the rest. Right: smooth shades at the left that become a dense pattern to the right."}}
plots.heatmaps([healthy, swapped], titles=["healthy", "swapped"], xlabel="channel",
               ylabel="position", size=(6.8, 3.0))

# %% [markdown]
# 192 columns of the healthy table are stripes of nearly one colour in {numref}`fig-bugs-maps`: slow channels, as {ref}`ch-tables` made them.
# By the rule above it is broken, and the swapped one, with two constant columns, passes.
# What gives the swapped table away is the *order of speeds*: it should fall from left to right.

# %%
def turns(pe):  # how often the columns change their sign
    signs = (pe[1:] * pe[:-1] < 0).sum(dim=0)
    return [signs[c : c + 64].double().mean().round().item() for c in (0, 192, 448)]

print("healthy, left to right:", turns(healthy))
print("swapped, left to right:", turns(swapped))

# %% [markdown]
# The doctor reads the frequencies themselves, and says in words which formula gives such a table.

# %%
def exchanged(length, d_model):
    i, p = torch.arange(d_model // 2).double(), torch.arange(length).double()
    a = i[None, :] / 10000 ** (2 * p[:, None] / d_model)
    return torch.stack((a.sin(), a.cos()), -1).flatten(1)

ask(exchanged, "table")

# %% [markdown]
# ### The table of zeros
#
# "A learned table that starts at zero never trains."
# The worry comes from layers: two rows of zero weights stay alike.
# Rows of a table belong to different positions.
# Predict whether their gradients are alike.

# %%
zeros = pe_lab.Learned(3, 16)
torch.nn.init.zeros_(zeros.weight)
print(f"shuffled task, zero start: {place_accuracy(shuffled, zeros):.0%}")
print("rows afterwards differ:", not torch.allclose(zeros.weight[0], zeros.weight[1]))

# %% [markdown]
# ### Buffer, parameter, attribute
#
# "Keep the sinusoidal table in an `nn.Parameter`, then it follows the model to every device."
# Three modules store the same table in three ways.
# A test of the first output is green for all.
# Predict which of them survives a training step, and which a move.

# %%
class Stored(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.linear, pe = torch.nn.Linear(8, 8), pe_lab.sinusoidal(16, 8)
        if how == "buffer":
            self.register_buffer("pe", pe, persistent=False)
        else:
            self.pe = torch.nn.Parameter(pe) if how == "parameter" else pe

    def forward(self, x):
        return self.linear(x) + self.pe[: x.shape[1]]

# %%
for how in ("parameter", "attribute", "buffer"):
    pe_lab.seed(0)
    module = Stored(how)
    before = module.pe.detach().clone()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    module(torch.randn(2, 16, 8)).square().sum().backward()
    optimizer.step()
    moved = (module.pe - before).abs().max().item()
    followed = module.to(torch.float64).pe.dtype == torch.float64
    print(f"{how:9}  a step moves it by {moved:.4f}  follows .to(): {followed}")

# %% [markdown]
# A parameter is trained: after one step it is no sinusoid any more.
# A plain attribute stays where it was, on *one* GPU as on several.
# A buffer does what was meant; data-parallel wrappers broadcast buffers when they start, too.
# But a buffer also follows a cast, and that is the next trap.

# %% [markdown]
# ### Sixteen bits
#
# "Positions are insensitive to precision: keep them in half precision."
# There are two ways to do that.
# One computes in float64 and stores the result; the other computes in 16 bits.
# Predict the larger error of the two, in fp16 at position 1000.

# %%
far = torch.tensor([1000.0])
for dtype in (torch.float16, torch.bfloat16):
    exact = pe_lab.sinusoidal(far.long(), 512, dtype=torch.float64)
    angles = far.to(dtype)[:, None] * pe_lab.inv_freq(512).to(dtype)
    computed = torch.stack((angles.sin(), angles.cos()), -1).flatten(1).double()
    stored = exact.to(dtype).double()
    fast, slow = (computed - exact).abs()[0].chunk(2)
    print(f"{str(dtype)[6:]:9} stored: off by {(stored - exact).abs().max():.4f}",
          f" computed: fast half {fast.max():.4f}, slow half {slow.max():.4f}")

# %% [markdown]
# Storing costs a rounding, computing costs the position.
# The slow channels are not the ones in danger, though one can read that: an angle's error is a share of the angle, so the fast channels lose first.
# float32 has no cliff at some tens of thousands either, and in fp16 the index itself comes to an end.

# %%
for dtype in (torch.float32, torch.float16):
    w = pe_lab.inv_freq(512)
    errors = []
    for place in (20_000, 100_000, 1_000_000):
        angle = torch.tensor(float(place)).to(dtype) * w.to(dtype)
        errors.append((angle.sin().double() - (place * w).sin()).abs().max().item())
    print(f"{str(dtype)[6:]} off by {[round(e, 3) for e in errors]}")
print("largest fp16 number:", torch.finfo(torch.float16).max)

# %% [markdown]
# ### The type error that does not come
#
# "An fp32 table added to half-precision words raises a type error."
# A test that waits for the error is green on broken code.
# Predict where the error really comes from.

# %%
words_16 = torch.randn(2, 16, 8).bfloat16()
x = words_16 + pe_lab.sinusoidal(16, 8)
print("after the sum:", x.dtype)
try:
    torch.nn.Linear(8, 8).bfloat16()(x)
except RuntimeError:
    print("one layer later: RuntimeError")

# %% [markdown]
# The sum is promoted in silence, and the next layer complains, or nobody does, and the rest of the model runs at twice the memory.
# The right test compares dtypes: what comes out has the dtype of what went in.

# %% [markdown]
# ### Past the end of the table
#
# "A text longer than the learned table makes the machine run out of memory."
# It does not; there is a plain index error, on a GPU an assertion.
# The dangerous version is another one: code that *clamps* the index, and gives all late tokens one place.
# Its first rows are right.

# %%
short = torch.nn.Embedding(8, 4)
try:
    short(torch.arange(10))
except IndexError as error:
    print("IndexError:", error)
clamped = short(torch.arange(10).clamp(max=7))
print("last three rows alike:", torch.equal(clamped[7], clamped[9]))

# %% [markdown]
# ### Two formulas for one frequency
#
# "Write `exp(-log(10000) · 2i/d)`; the power form underflows for large widths, and copies on several GPUs drift apart."
# Predict the smallest frequency at a width of a million, and which of the two forms is more exact in float32.

# %%
from math import log

i = torch.arange(0, 512, 2)
exact = 10000 ** (-i.double() / 512)
forms = {
    "exp of log": torch.exp(i.float() * (-log(10000) / 512)),
    "power": 10000 ** (-i.float() / 512),
}
for name, w in forms.items():
    print(f"{name:11} relative error {((w.double() - exact) / exact).abs().max():.0e}")
huge = 1 / 10000 ** (torch.arange(0, 2**20, 2).float() / 2**20)
print(f"smallest frequency at width {2**20}: {huge.min():.4e}")
print("a copy differs:", not torch.equal(forms["power"], forms["power"].clone()))

# %% [markdown]
# Both forms may be used, and the power is the more exact one.
# Nothing underflows, since no frequency falls below $1/10000$.
# Copies do not drift; what differs are tables computed *anew* by another formula or on another device.

# %% [markdown]
# ### Pads, masks and shapes
#
# Three more items, settled in one cell each.
# "Give pads a position, or LayerNorm treats them differently and training suffers": {ref}`ch-add` has shown that real tokens cannot notice.
# "Mind the order of mask and bias": an additive mask commutes with it.
# Predict which kind of mask does not.

# %%
s, b = torch.randn(2, 6, 6, generator=rng, dtype=torch.float64)
visible = torch.ones(6, 6).tril().bool()
minus = torch.zeros(6, 6).masked_fill(~visible, -torch.inf)
print("additive, either order:", torch.equal((s + b) + minus, (s + minus) + b))
times = [((s + b) * visible).softmax(-1), (s * visible + b).softmax(-1)]
apart = (times[0] - times[1]).abs().max()
print(f"multiplied: weights differ by {apart:.1f}")
print(f"and the future gets {times[0][0, 1:].sum():.2f} of the first row")
print("a row that sees nothing:", torch.full((2,), -torch.inf).softmax(0).tolist())

# %%
pe = pe_lab.sinusoidal(6, 8)
x = torch.randn(3, 6, 8, generator=rng)
print("(1, L, d) and (L, d) give the same:", torch.equal(x + pe[None], x + pe))
try:
    torch.zeros(1, 4, 768) + torch.zeros(4, 512)
except RuntimeError:
    print("768 + 512: RuntimeError")

# %% [markdown]
# Unequal widths cannot be added, so that bug finds itself.
# The width to match is that of the place where the table is *added*, which is not always $d_\text{model}$:
# ALBERT {cite:p}`lan2020` and ELECTRA {cite:p}`clark2020` add at a narrow embedding and project the sum.

# %% [markdown]
# ### Item by item
#
# The lists that we collected, in our words, with what holds.
# Items with a cell above are marked ●, those settled in other chapters carry the reference.
#
# | Item | Does it hold? | What holds |
# |---|---|---|
# | **Looking** | | |
# | Plot the table, positions down, channels across; fast at the left | yes | and read speeds, not colours ● |
# | No large uniform areas | no | slow channels are uniform over a short text ● |
# | Position and channel exchanged give stripes with all positions alike | partly | two constant columns; the tell-tale is the order of speeds ● |
# | A heat map shows that time stamps were used as positions | no | it shows the table, not the ids; print the ids |
# | Some heads look one token back, and die when the table is zeroed | for a released encoder, yes (not run here) | zero the table and look at your model |
# | Early layers look at places, deep ones at meaning | for the same encoder, yes (not run here) | one model is no law |
# | **Testing** | | |
# | Map [A, B, C] to [0, 1, 2] | no | shuffle the tokens ● |
# | `gradcheck` for learned tables | no | `.grad` after `backward`, row by row ● |
# | Check place of addition, widths, finite values | yes | and it is not enough: all of our suspects pass ● |
# | A table of zeros never trains | no | its rows get different gradients ● |
# | Most failures to converge come from positions; a dozen lessons with cases | no source | the lists are longer than they say, and mostly without cases |
# | **Precision** | | |
# | bfloat16 has a relative error near 0.008 | half of it | that is the spacing; rounding is off by half of it at most |
# | In bfloat16 the slow channels are in danger, by little | no | the fast ones, by radians ● |
# | Compute in float32 or wider, then cast; LLaMA does | yes | ● |
# | Positions are insensitive, keep them in fp16 | for storing | never for computing ● |
# | Past some tens of thousands low channels jump | not in float32 | growing rounding, no jumps; fp16 and bfloat16 fail far earlier ● |
# | Past a hundred thousand fast channels are distorted | a little in float32 | fatal in 16 bits ● |
# | `exp(-log)` is steadier than a power; a power underflows | no | the power is more exact, and cannot underflow ● |
# | A table built by a power of 10000 is right | yes | ● |
# | An fp32 table on 16-bit words raises | not there | one layer later, or never ● |

# %% [markdown]
# | Item | Does it hold? | What holds |
# |---|---|---|
# | **Storing** | | |
# | A buffer follows the model and stays out of the optimizer | yes | ● |
# | Keep it in a parameter, for caching or for several GPUs | no | it is trained; wrappers broadcast buffers too ● |
# | Wrappers keep buffers in sync | at the start, and per step where that is on | a table that never changes needs the first alone |
# | A plain tensor works on one GPU and fails on several | no | it fails as soon as the module moves ● |
# | Copies on several GPUs drift apart | no | a copy is a copy; recomputing elsewhere is not ● |
# | Shape (1, L, d) saves copies | no | (L, d) broadcasts alike ● |
# | A table of 8192 rows and 4096 channels takes 128 MB | yes, counted in MiB | see the cell below |
# | Load large tables in pieces | rarely worth it | compare with the activations |
# | Three tricks saved more than a gigabyte | implausible | the whole table is smaller than the saving |
# | Sinusoids are free at run time, learned rows are not | no | cached, they cost the same |
# | A text past the table exhausts the memory | no | an index error, or a silent clamp ● |
# | **Padding and masks** | | |
# | Give pads a position, then mask them | fine, with a key mask | rows that see nothing become NaN; {ref}`ch-add` |
# | Pads without position harm training | no | real tokens cannot notice; {ref}`ch-add` |
# | All frameworks count from 0 through the pads | no | several families count real tokens; left padding needs it |
# | Order of position and mask | no such order | additive parts commute; never multiply a mask ● |
# | **Sizes and places** | | |
# | Dropout on the sum, once | yes | {ref}`ch-add` |
# | Without it training starts faster and ends worse | no data | measure |
# | Positions need no LayerNorm of their own | mostly | the sum often has one |
# | Widths that differ raise | yes | ● |
# | The table has the width of the model | not always | the width where it is added ● |
# | $d_\text{model}$ is the width of queries and keys | no | of all heads together; a head has its share |
# | Sines and cosines in another order still train | yes | and checkpoints are not exchangeable; {ref}`ch-tables` |
# | Loss oscillates: divide; long texts fail: change the scheme; fine-tuning fails: unfreeze | no evidence | measure first: {ref}`sec-bugs-symptoms` |
# | The √d story's points of loss and BLEU | no data | the mechanism holds; {ref}`ch-add` |

# %%
for length, width in [(8192, 4096), (10_000, 4096)]:
    table = pe_lab.sinusoidal(8, width)
    size = length * table[0].nbytes
    print(f"{length} × {width}: {size / 1e6:.0f} MB, {size / 2**20:.0f} MiB")
print("bfloat16: spacing", torch.finfo(torch.bfloat16).eps, "rounding", 2**-8)

# %% [markdown]
# (sec-bugs-symptoms)=
# ## From the symptom to the measurement
#
# You rarely start from a check; you start from a model that misbehaves.
# What you see narrows the place down, so measure there first; {ref}`sec-bugs-checks` says what each check measures.
#
# | You see | Measure first | Check |
# |---|---|---|
# | loss falls, but late | the two parts of the input sum | `D-SCALE` |
# | order of words does not matter | shuffle tokens, then texts | `D-ORDER` |
# | a ported checkpoint writes gibberish | which two channels mix, in which sign | `D-LAYOUT` |
# | short texts fine, long ones not | angles at thousands; the trained length | `D-LONG`, `D-BASE`, `D-LEN` |
# | first token fine, then repetition | one step against the full pass | `D-CACHE` |
# | batches worse than single texts | a padded row against the row alone | `D-PAD`, `D-BATCH` |
# | packed training worse than padded | two documents against each alone | `D-PACK` |
# | second request wrong, restart helps | short, long, short again | `D-HISTORY` |
# | 16 bits worse than 32 | angles after every cast | `D-DTYPE` |
# | NaN or noise after loading | frequencies after a load without data | `D-STATE` |
# | text fine, images wrong | a grid that is not square | `D-GRID`, `D-LAYOUT` |
# | a config that "works" | base and rule, fitted from the outputs | `D-BASE`, `D-CONFIG` |

# %% [markdown]
# (sec-bugs-checks)=
# ## The doctor's checks
#
# Each check measures something, prints the number beside its tolerance, and does not stop at the place in the last column.
# A chapter in brackets explains what it is about.
# A check that does not apply says so; it does not pass.
#
# | Check | What it measures | So it does not look only at |
# |---|---|---|
# | `D-SHIFT` | scores when all positions are shifted, in the subject's own dtype ({ref}`ch-score`) | position 0 |
# | `D-NORM` | length of every pair after turning, and gains ({ref}`ch-rotate`) | position 0 |
# | `D-LAYOUT` | which two channels mix, in which sense, with which partner table ({ref}`ch-rotate`) | position 0 |
# | `D-DIM` | which channels move, and the speed of each pair ({ref}`ch-rotate`) | the tables |
# | `D-BASE` | speed of every pair, fitted to a base and a scaling rule ({ref}`ch-tables`) | short texts |
# | `D-OFFSET` | which row the first position reads ({ref}`ch-tables`) | differences of rows |
# | `D-LONG` | angles at large positions, against exact ones ({ref}`ch-tables`) | short texts |
# | `D-LEN` | positions at, past and far past a table; negative ones ({ref}`ch-tables`) | lengths that fit |
# | `D-ORDER` | shuffled tokens, shuffled texts, heads at one position ({ref}`ch-break`) | squares |
# | `D-CAUSAL` | whether a late token changes an early output ({ref}`ch-break`) | one token |
# | `D-LAYER` | the same questions to each layer ({ref}`ch-break`) | the first layer |
# | `D-CACHE` | one token at a time, against the full pass | the full pass |
# | `D-HISTORY` | short, long, short again; wide after narrow | the first call |
# | `D-BATCH` | a row alone, against the row among others | a batch of one |
# | `D-PAD` | a padded row, against the row without padding | rows of one length |
# | `D-PACK` | two documents in one row, against each alone | one document |
# | `D-DTYPE` | 16-bit inputs, casts, autocast, default dtypes | float32 |
# | `D-STATE` | buffers, gradients, aliases, inference mode, loading | this path |
# | `D-MODE` | train and eval mode ({ref}`ch-add`) | eval mode |
# | `D-EXPORT` | whether a program exported at one length runs at another; made where `compile=True` asks for it | the traced length |
# | `D-ALIGN` | rows of a bias when there are more keys than queries | equal lengths |
# | `D-BIAS` | slopes, buckets, clipping, sign, symmetry, alignment | equal lengths, powers of two |
# | `D-GRID` | row code against rows, column code against columns | squares |
# | `D-SHAPE` | odd widths, L = H, axes of other numbers ({ref}`ch-tables`) | even sizes |
# | `D-SCALE` | size of the word's part and of the place's part; dropout ({ref}`ch-add`) | the loss |
# | `D-CONFIG` | keys that are missing, ignored, contradictory | defaults |
# | `D-INPUT` | whether the input is written into | the output |
# | `D-GRAD` | who gets a gradient, row by row | values |
# | `D-ERROR` | whether a check itself stumbled, and over what | |
# | `D-TIME` | whether the time sufficed | |

# %% [markdown]
# ## How good is the doctor?
#
# It is software, and has to be tested on patients whose bug is known.
# The catalogue `pe_lab.doctor.mutants` holds correct encodings with one bug each, written as people write them, and correct ones of many conventions.
# The results come from a stored run over all of them, because it takes minutes.

# %%
from collections import Counter
from pe_lab.doctor import confusion, results

stored = results.load("confusion")
outcomes = [confusion.Outcome(**row) for row in stored["outcomes"]]
print("examined on", stored["date"])
for name, share in confusion.rates(outcomes).items():
    print(f"{name:13} {share:.1%}")

# %%
for kind in dict.fromkeys(o.kind for o in outcomes):
    sick = [o for o in outcomes if o.kind == kind and o.sick]
    well = [o for o in outcomes if o.kind == kind and not o.sick]
    print(f"{kind:10} {len(sick):3} with a bug: {sum(o.alarm for o in sick):3} found, "
          f"{sum(o.named for o in sick):3} named;  "
          f"{len(well):2} healthy: {sum(o.alarm for o in well)} alarms")

# %% [markdown]
# *Found* means that something was called wrong or risky, *named* that the first finding was the bug and no consequence of it.
# Both can be bought by crying wolf, so the healthy patients count as much: both orders of sinusoids, xPos, gains, partial rotations, learned tables.
# In {numref}`fig-bugs-confusion` the mutants of each check stand in a row, and the columns say what the first finding was.

# %% mystnb={"figure": {"name": "fig-bugs-confusion", "caption": "Mutants by the check that names their bug (rows) and by the check of the doctor's first finding (columns): numbers, coloured by the share of the row. A bug with several right names counts where it was named."}, "image": {"alt": "A square heat map with a dark diagonal and few pale cells beside it."}}
naming = {(m.kind, m.name): m.checks for m in pe_lab.doctor.mutants.mutants()}
pairs = Counter()
for o in outcomes:
    if o.sick:
        names = naming.get((o.kind, o.name), (o.first,))
        pairs[o.first if o.named else names[0], o.first or "none"] += 1
rows_of = sorted({name for name, _ in pairs})
columns = rows_of + sorted({first for _, first in pairs} - set(rows_of))
counts = torch.tensor([[pairs[r, c] for c in columns] for r in rows_of]).double()
with plots.figure(size=(6.8, 6.0)) as (fig, ax):
    shares = counts / counts.sum(dim=1, keepdim=True)
    ax.imshow(shares, cmap="Purples", vmax=3)
    for r, c in counts.nonzero().tolist():
        ax.text(c, r, int(counts[r, c]), ha="center", va="center", fontsize=8)
    ax.set_xticks(range(len(columns)), columns, rotation=90)
    ax.set_yticks(range(len(rows_of)), rows_of)
    ax.set(xlabel="first finding", ylabel="the bug")
    ax.grid(visible=False)
fig

# %% [markdown]
# The catalogue was written by people who knew the doctor, so read these shares as what it does for bugs *of these kinds*.
# A bug that nobody thought of is the reader's to report.

# %% [markdown]
# (sec-bugs-own)=
# ## Debug your own
#
# The doctor asks each kind in one way:
#
# | kind | is called as | gives |
# |---|---|---|
# | `"table"` | `f(length, d_model)` | (L, d) |
# | `"add"` | `f(x)`, x of shape (B, L, d) | x + encoding |
# | `"rope"` | `f(x, positions)` or `f(q, k, positions)`, (B, H, L, D) | turned vectors |
# | `"bias"` | `f(q_len, k_len)` or `f(q_pos, k_pos)` | (H, Lq, Lk) |
# | `"slopes"` | `f(num_heads)` | (H,) |
# | `"attention"` | `f(x)`, x of shape (B, L, d) | (B, L, d) |
# | `"model"` | `f(ids)`, ids of shape (B, L) | logits |
# | `"config"` | a dict, a path or a config object | nothing is run |
#
# Any other convention is adapted in a line.
# Here is a rotation that wants tokens before heads, and a base that nobody told you.

# %%
def somebodys(x, positions):  # x: (B, L, H, D)
    angles = positions[:, None, None] * pe_lab.inv_freq(x.shape[-1], base=5e5)
    return turn(x, angles)

report = pe_lab.diagnose(
    lambda x, p: somebodys(x.transpose(1, 2), p).transpose(1, 2), kind="rope"
)
print({fact: report.identity[fact] for fact in ("layout", "rotary_dim", "base")})

# %% [markdown]
# Forget the transposition, and the doctor says so; that is worth seeing once.
# `expected` turns facts into demands, and sizes such as `head_dim=96` or `num_heads=12` are passed by name.
# Whole models are asked with ids.

# %%
ask(somebodys, "rope")
pe_lab.seed(0)
model = pe_lab.Transformer(50, 32, 4, 2, encoding=pe_lab.RoPE(8)).eval()
ask(model, "model", vocab_size=50)

# %% [markdown]
# Configs are read and not run.
# This one says that half of each head turns, in a family whose code has ignored the key for the plain rule.

# %%
config = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
          "max_position_embeddings": 8192, "partial_rotary_factor": 0.5}
ask(config, "config")

# %% [markdown]
# On the command line it is `pe-lab doctor mine.py:Rotary`, with `--json` and an exit code for your checks, and `--html` for a page.
# It runs the code that you point it to, with your rights: look at foreign code before you examine it.
# The subject itself is not called, only copies of it, unless it cannot be copied.

# %% [markdown]
# ## Common mistakes
#
# **One test for two bugs.** Two errors may cancel: rows and columns swapped in the grid, and again in the reader.
# The sum is right, and each half breaks when it is used alone; test the pieces.

# %%
row, column = cells(2, 3, side=3)
there = torch.stack((column, row))  # the names are swapped …
back = torch.stack((there[1], there[0]))  # … and swapped back
print("both together:", torch.equal(back, torch.stack((row, column))))
print("one alone:    ", torch.equal(there, torch.stack((row, column))))

# %% [markdown]
# **A tolerance that forgives the bug.** `allclose` allows a relative error of one in 100,000 and an absolute one of a hundred-millionth unless told otherwise.
# For bfloat16 people widen both until the test is green.
# Say where the tolerance comes from: a rounding of the format, times the size of the numbers.

# %%
good = port(torch.ones(1, 1, 1, 64), torch.tensor([9]))
bad = port(torch.ones(1, 1, 1, 64), torch.tensor([10]))
for atol in (1e-6, 0.01, 1.5):
    passes = torch.allclose(good, bad, atol=atol)
    print(f"atol {atol:g}: one position off passes: {passes}")

# %% [markdown]
# **A reference with the same bug.** A port that is compared with the code it was copied from agrees with its bugs.
# Compare with a formula, in float64, written another way: here a complex power for a rotation.

# %%
x = torch.randn(1, 1, 5, 8, generator=rng, dtype=torch.float64)
z = torch.complex(*x.chunk(2, dim=-1))
power = z * torch.exp(1j * torch.arange(5)[:, None] * pe_lab.inv_freq(8))
print(close(port(x, torch.arange(5)), torch.cat((power.real, power.imag), -1)))

# %% [markdown]
# ## Compare with real code
#
# The same examination, made on released libraries and stored with the date and their versions.
# Nothing found is good news; where something was found, the line says under which circumstances.
# Predict which of the seven families is the most frequent.

# %%
peers = results.load("peers")
print("examined on", peers["date"])
for package in dict.fromkeys(row["package"] for row in peers["rows"]):
    rows_of = [row for row in peers["rows"] if row["package"] == package]
    bad = sum(row["severity"] in ("wrong", "risky") for row in rows_of)
    release = rows_of[0]["version"]
    print(f"{package} {release}: {len(rows_of)} pieces, {bad} with findings")

# %%
for row in peers["rows"]:
    if row["severity"] in ("wrong", "risky"):
        sign = "✗" if row["severity"] == "wrong" else "!"
        found = f"{sign} {row['package']}, {row['what']}: {row['known']}"
        print(fill(found, 84, subsequent_indent="  "))

# %% [markdown]
# Most of it is of the last family, *on this path*: a module that is built in 16 bits, or cast as a whole.
# The rest is about a second call, a longer text, or keys of a config that are not read.
# Some is intended, and documented: a family that was trained with biases in bfloat16 needs them so.
# And a few pieces have none of this, which is what a healthy report looks like.

# %% [markdown]
# ## Exercises
#
# Eight suspects, numbered and without a name.
# Each is an encoding from the catalogue, with one bug or none.
# Measure it, then answer with one of these words; `check` tells a wrong answer what it would have looked like.
# You may ask the doctor in the end.

# %%
from pe_lab.exercises.cases import WORDS

for word, meaning in WORDS.items():
    print(f"{word:10} {meaning}")

# %% [markdown]
# `````{exercise} Case 1 ★
# :label: ex-18-case-1
#
# Suspect 1 is a rotation, called as `f(x, positions)`, x of shape (B, H, L, 64). Measure it and set `verdict` to one of the words.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# This one turns. Which channels move, and by how much?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Send the unit vectors through at position 1: what stays, what turns?
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# The first pair turns by 1. By which factor should each next pair be slower, if so many pairs turn?
# ````
# `````

# %% tags=["exercise"]
# given
suspect = pe_lab.exercises.case(1)
# your turn
verdict = ...

pe_lab.check("18-case-1", verdict)
# %% [markdown]
# ````{solution} ex-18-case-1
# :class: dropdown
#
# 32 of the 64 channels turn: 16 pairs. The second should turn by $10000^{-2/32}$, and turns by $10000^{-2/64}$.
#
# ```python
# # given
# suspect = pe_lab.exercises.case(1)
# # your turn
# for part in (slice(4), slice(32, 64)):
#     turned = suspect(torch.eye(64)[None, None], torch.ones(64).long())[0, 0]
#     print(turned.diagonal()[part].acos())
# verdict = "ladder"
#
# pe_lab.check("18-case-1", verdict)
# ```
# ````

# %% [markdown]
# `````{exercise} Case 2 ★
# :label: ex-18-case-2
#
# Suspect 2 is a rule for slopes, called as `f(num_heads)`. Measure it and set `verdict` to one of the words.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Slopes are for a number of heads. Ask for several numbers.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Ask one suspect for several numbers, and ask it again.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Small, large, and the small one once more.
# ````
# `````

# %% tags=["exercise"]
# given
suspect = pe_lab.exercises.case(2)
# your turn
verdict = ...

pe_lab.check("18-case-2", verdict)
# %% [markdown]
# ````{solution} ex-18-case-2
# :class: dropdown
#
# The third answer differs from the first: two of the eight slopes that it was asked for in between.
#
# ```python
# # given
# suspect = pe_lab.exercises.case(2)
# # your turn
# print(suspect(2), suspect(8), suspect(2))
# verdict = "memory"
#
# pe_lab.check("18-case-2", verdict)
# ```
# ````

# %% [markdown]
# `````{exercise} Case 3 ★★
# :label: ex-18-case-3
#
# Suspect 3 is a rotation, called as `f(x, positions)`, x of shape (B, H, L, 64). Measure it and set `verdict` to one of the words.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Lengths are the first thing to measure in a rotation.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Send one unit vector through, and look at which channels answer.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Two channels mix. By which angle does each of the two turn?
# ````
# `````

# %% tags=["exercise"]
# given
suspect = pe_lab.exercises.case(3)
# your turn
verdict = ...

pe_lab.check("18-case-3", verdict)
# %% [markdown]
# ````{solution} ex-18-case-3
# :class: dropdown
#
# Channels 0 and 1 mix, and the length changes: each by another angle, 3 of the first speed and 3 of the second.
#
# ```python
# # given
# suspect = pe_lab.exercises.case(3)
# # your turn
# for channel in (0, 1):
#     moved = suspect(torch.eye(64)[None, None, [channel]], torch.tensor([3])).flatten()
#     print(moved[:4], moved.norm())
# verdict = "layout"
#
# pe_lab.check("18-case-3", verdict)
# ```
# ````

# %% [markdown]
# `````{exercise} Case 4 ★★
# :label: ex-18-case-4
#
# Suspect 4 is a rotation, called as `f(x, positions)`, x of shape (B, H, L, 64). Measure it and set `verdict` to one of the words.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# In float64 it is right. Where else can it be asked?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Give it 16 bits, and take the same in float64 for comparison.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Compare at an early position, and at one in the hundreds.
# ````
# `````

# %% tags=["exercise"]
# given
suspect = pe_lab.exercises.case(4)
# your turn
verdict = ...

pe_lab.check("18-case-4", verdict)
# %% [markdown]
# ````{solution} ex-18-case-4
# :class: dropdown
#
# At the early position the two agree but for rounding, at the late one they do not.
#
# ```python
# # given
# suspect = pe_lab.exercises.case(4)
# # your turn
# for dtype in (torch.bfloat16, torch.float64):
#     x = torch.ones(1, 1, 2, 64, dtype=dtype)
#     print(suspect(x, torch.tensor([8, 800]))[0, 0, :, :4])
# verdict = "precision"
#
# pe_lab.check("18-case-4", verdict)
# ```
# ````

# %% [markdown]
# `````{exercise} Case 5 ★★
# :label: ex-18-case-5
#
# Suspect 5 is a bias, called as `f(q_len, k_len)`. Measure it and set `verdict` to one of the words.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# A bias has rows for queries and columns for keys. Ask for more keys than queries.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# If one query is the last of four tokens, its row is known: where?
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Compare its row for (1, 4) with the last row of (4, 4).
# ````
# `````

# %% tags=["exercise"]
# given
suspect = pe_lab.exercises.case(5)
# your turn
verdict = ...

pe_lab.check("18-case-5", verdict)
# %% [markdown]
# ````{solution} ex-18-case-5
# :class: dropdown
#
# The one query is token 3 of four, and gets the row of token 0.
#
# ```python
# # given
# suspect = pe_lab.exercises.case(5)
# # your turn
# print(suspect(1, 4)[0], suspect(4, 4)[0, -1])
# verdict = "alignment"
#
# pe_lab.check("18-case-5", verdict)
# ```
# ````

# %% [markdown]
# `````{exercise} Case 6 ★
# :label: ex-18-case-6
#
# Suspect 6 is a table, called as `f(length, d_model)`. Measure it and set `verdict` to one of the words.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Its first rows are sinusoids, and right.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# How far does it go?
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Compare some late rows with each other.
# ````
# `````

# %% tags=["exercise"]
# given
suspect = pe_lab.exercises.case(6)
# your turn
verdict = ...

pe_lab.check("18-case-6", verdict)
# %% [markdown]
# ````{solution} ex-18-case-6
# :class: dropdown
#
# From some row on, all are alike.
#
# ```python
# # given
# suspect = pe_lab.exercises.case(6)
# # your turn
# print(suspect(2000, 8)[400:2000:200])
# verdict = "range"
#
# pe_lab.check("18-case-6", verdict)
# ```
# ````

# %% [markdown]
# `````{exercise} Case 7 ★★
# :label: ex-18-case-7
#
# Suspect 7 is a front end, called as `f(x)`, x of shape (B, L, 32). Measure it and set `verdict` to one of the words.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Give it zeros, and you see what it adds.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Compare the rows within one text, then the same row of two texts.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Which axis of what it adds varies?
# ````
# `````

# %% tags=["exercise"]
# given
suspect = pe_lab.exercises.case(7)
# your turn
verdict = ...

pe_lab.check("18-case-7", verdict)
# %% [markdown]
# ````{solution} ex-18-case-7
# :class: dropdown
#
# All three tokens of a text get one row, and the texts differ.
#
# ```python
# # given
# suspect = pe_lab.exercises.case(7)
# # your turn
# print(suspect(torch.zeros(2, 3, 32))[:, :, :2])
# verdict = "axis"
#
# pe_lab.check("18-case-7", verdict)
# ```
# ````

# %% [markdown]
# `````{exercise} Case 8 ★★★
# :label: ex-18-case-8
#
# Suspect 8 is a rotation, called as `f(q, k, positions)`, q and k of shape (B, H, L, 64), which gives both. Measure it and set `verdict` to one of the words.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# It takes queries and keys together, so look at what becomes of their products.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Lengths change here. Do the scores depend on the offset alone?
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Shift all positions by a hundred: which scores change?
# ````
# `````

# %% tags=["exercise"]
# given
suspect = pe_lab.exercises.case(8)
# your turn
verdict = ...

pe_lab.check("18-case-8", verdict)
# %% [markdown]
# ````{solution} ex-18-case-8
# :class: dropdown
#
# Lengths change, one by growing and one by shrinking, and no score notices. It is xPos.
#
# ```python
# # given
# suspect = pe_lab.exercises.case(8)
# # your turn
# for shift in (0, 100):
#     x = torch.ones(1, 1, 4, 64, dtype=torch.float64)
#     q, k = suspect(x, x, torch.arange(4) + shift)
#     print(q.norm(dim=-1), k.norm(dim=-1), q @ k.mT)
# verdict = "healthy"
#
# pe_lab.check("18-case-8", verdict)
# ```
# ````

# %% [markdown]
# Collect your verdicts here in place of the dots, run the cell, and `score` counts them.
# It says which suspects are named rightly, and not what the others are.

# %%
verdicts = {1: ..., 2: ..., 3: ..., 4: ..., 5: ..., 6: ..., 7: ..., 8: ...}
pe_lab.exercises.score(verdicts)

# %% [markdown]
# `````{exercise} A test that fails when it should ★★
# :label: ex-18-order
#
# Write `sees_order(f)` for a front end `f`, which takes (B, L, 8) and gives the same shape: True if it puts the order of *tokens* in,
# False if it adds nothing, one row for all, or a row for each *text*.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# {ref}`ch-break` has the equation: without order, $f(PX) = P f(X)$.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# Use tokens that differ, more than two of them, and two texts. Which axis do you shuffle?
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Compare `f(x.flip(1))` with `f(x).flip(1)`.
# ````
# `````

# %% tags=["exercise"]
def sees_order(f):
    """Whether f(PX) differs from P f(X), P shuffling tokens."""
    ...


pe_lab.check("18-order", sees_order)
# %% [markdown]
# ````{solution} ex-18-order
# :class: dropdown
#
# ```python
# def sees_order(f):
#     """Whether f(PX) differs from P f(X), P shuffling tokens."""
#     rng = torch.Generator().manual_seed(0)
#     x = torch.randn(2, 6, 8, generator=rng, dtype=torch.float64)
#     return not torch.allclose(f(x.flip(1)), f(x).flip(1))
#
#
# pe_lab.check("18-order", sees_order)
# ```
# ````

# %% [markdown]
# `````{exercise} Put it on the table ★★
# :label: ex-18-adapt
#
# `theirs(x, start)` takes `x` of shape (B, L, H, D) and turns token $t$ by position start + $t$.
# Write `adapted(theirs, x, positions)` for `x` of shape (B, H, L, D) and *any* positions (L,), in the form that the doctor asks for.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Two things differ: the order of axes, and how positions are given.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The positions may be 3, 5, 4. A single token has a position of its own.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `x[:, :, [t]]` keeps the axis of tokens; transpose, call, collect with `torch.cat`, transpose back.
# ````
# `````

# %% tags=["exercise"]
def adapted(theirs, x, positions):
    """theirs, called as f(x: B×H×L×D, positions)."""
    ...


pe_lab.check("18-adapt", adapted)
# %% [markdown]
# ````{solution} ex-18-adapt
# :class: dropdown
#
# ```python
# def adapted(theirs, x, positions):
#     """theirs, called as f(x: B×H×L×D, positions)."""
#     steps = [
#         theirs(x[:, :, [t]].transpose(1, 2), int(p)) for t, p in enumerate(positions)
#     ]
#     return torch.cat(steps, dim=1).transpose(1, 2)
#
#
# pe_lab.check("18-adapt", adapted)
# ```
# ````

# %% [markdown]
# ## Quiz
#
# 1. A port keeps lengths, leaves position 0 alone, and its scores depend on offsets only. What do you know?
#    (a) it fits the checkpoint; (b) it is a rotation, of some layout and some ladder; (c) its base is 10000.
#
# ````{admonition} Answer 1
# :class: dropdown
# **b.** Not a: both layouts pass, and only one fits the weights. Not c: any base passes, at position 0 and everywhere.
# ````
#
# 2. A learned table is stuck at row 0. Which test tells? (a) `gradcheck`; (b) `.grad` of each row; (c) the loss is finite.
#
# ````{admonition} Answer 2
# :class: dropdown
# **b.** Rows that are never read have a gradient of zero. Not a: zero agrees with zero. Not c: nothing becomes infinite.
# ````

# %% [markdown]
# 3. Two biases differ by a constant in each row. What follows for the weights? (a) nothing changes in exact arithmetic; (b) the model is broken;
#    (c) nothing changes in bfloat16 either.
#
# ````{admonition} Answer 3
# :class: dropdown
# **a.** Softmax ignores it. Not b, for that reason. Not c: a large constant uses up the digits of a 16-bit number.
# ````
#
# 4. Your test makes a new module for each call, and everything is green. Which family can still hide? (a) first call; (b) position 0; (c) squares.
#
# ````{admonition} Answer 4
# :class: dropdown
# **a.** A cache that misleads the second call has none. Not b and not c: those depend on positions and sizes, which a new module does not fix.
# ````

# %% [markdown]
# ## Take-away
#
# - A test finds a bug only if it looks where the bug shows: in the middle, off the square, far out, in a ragged batch, before the softmax, twice, on each path.
# - Measure what a thing *is*, pairs, speeds, slopes, rows; then compare that with what the weights expect.
# - Before you trust a test, see it fail: on no encoding, on one row for all, on a table along the batch.
# - The √d bug takes two questions and no training: what comes back for zeros, and what is added for words.
#
# {numref}`fig-bugs-places` has each specimen of this chapter at the usual place and at the right one.

# %%
def gap(f, g, *arguments):
    return (f(*arguments) - g(*arguments)).abs().max().item()

ones, keeps = torch.ones(1, 1, 1, 64, dtype=torch.float64), Keeps()
first = gap(keeps, port, ones, torch.tensor([0]))
at_head = [gap(f, g, ones[..., :8], torch.tensor([p]))
           for f, g in [(port, trained), (wrong, right)] for p in (0, 1)]
apart = {
    "layout: position 0, 1": at_head[:2],
    "ladder: position 0, 1": at_head[2:],
    "slopes: 8 heads, 6": [gap(formula, pe_lab.alibi_slopes, n) for n in (8, 6)],
    "16 bits: position 2, 1857": [worst(narrow, p) for p in (2, 1857)],
    "two-sided: 3 × 3, 3 × 9": [
        gap(lambda *n: two_sided(*n, late=False), lambda *n: two_sided(*n, late=True),
            3, k) for k in (3, 9)],
    "memory: call 1, 2": [first, gap(keeps, port, ones, torch.tensor([3]))],
    "decoding: full pass, step": [gap(by_queries, by_both, n, 4) for n in (4, 1)],
}

# %% mystnb={"figure": {"name": "fig-bugs-places", "caption": "Largest deviation of each specimen from its mended version, at a place where tests usually look (grey) and at a place where the bug shows (green)."}, "image": {"alt": "Seven pairs of dots. All grey dots lie at or near zero; all green dots lie well to the right."}}
with plots.figure(size=(6.8, 3.4), xlabel="largest deviation") as (fig, ax):
    for row, (usual, shows) in enumerate(apart.values()):
        ax.plot([usual, shows], [row, row], color="#BBBBBB", lw=2, zorder=1)
        ax.scatter([usual], [row], color=plots.color("content"), zorder=2)
        ax.scatter([shows], [row], color=plots.color("position"), zorder=2)
    ax.set_yticks(range(len(apart)), list(apart))
    ax.invert_yaxis()
fig

# %% [markdown]
# ## Further reading
#
# - {cite:t}`vaswani2017`: section 3.5 has the formulas that tables are checked against.
# - {cite:t}`su2021`: the rotation in its first layout, with adjacent pairs.
# - {cite:t}`press2022`: slopes for numbers of heads that are powers of two; the rule for others is in their released code.
# - {cite:t}`lan2020` and {cite:t}`clark2020`: models that add positions at a width other than that of their layers.
# - {ref}`ch-bug-index`: the public reports, each with what went wrong, where this book explains it, and which check sees it.

# %% tags=["nbval-ignore-output"] reason="versions and processors differ from machine to machine"
pe_lab.provenance()
