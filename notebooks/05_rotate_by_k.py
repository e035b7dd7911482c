# %% [markdown]
# (ch-rotate)=
# # Rotate by k
#
# :::{div} strip
# 50 minutes to read · under 15 s of CPU · you need matrix products and {ref}`ch-tables`.
# :::
#
# **You will be able to**
#
# - write the block that moves one clock by $k$ steps, with its signs right ({ref}`ex-05-block`);
# - move a whole table without going backwards ({ref}`ex-05-rows`);
# - find the matrix in data, and say when the data cannot hold it ({ref}`ex-05-fit`);
# - build an attention head that looks three tokens back ({ref}`ex-05-look`), and read an offset off two rows
#   ({ref}`ex-05-offset`);
# - make a long table out of two short ones, faster and without loss ({ref}`ex-05-add`).

# %% [markdown]
# ## Two rows, three steps apart
#
# Here are four rows of the smallest useful table, $d_\text{model} = 4$.
# Position 8 stands three steps after position 5, and 108 three steps after 105.
# Before you run the cell, guess: do the two jumps look alike in the numbers?

# %%
import torch
import pe_lab

torch.set_num_threads(1)
pe = pe_lab.sinusoidal(200, d_model=4, dtype=torch.float64)
pe[[5, 8, 105, 108]].round(decimals=3)

# %% [markdown]
# The first number rises by almost two in both jumps, and there the likeness ends:
# the second one falls in one jump and rises in the other.
# Still, {cite:t}`vaswani2017` say in section 3.5 that row $p + k$ is a *linear function* of row $p$, for every fixed $k$.
# Then one matrix makes both jumps.
# The cell shows it for $k = 3$, and its products with rows 5 and 105.

# %%
M_3 = pe_lab.rotation_matrix(3, d_model=4)
print(M_3.round(decimals=3))
print(torch.stack((M_3 @ pe[5], M_3 @ pe[105])).round(decimals=3))

# %% [markdown]
# Both rows arrive: compare them with rows 8 and 108 above.
# The paper gives neither proof nor matrix.
# We prove the statement, write the matrix down, find it in data, see which tables have none, and put it to work.
#
# ## Try it
#
# Move $p$: every hand turns, and no entry of the matrix changes.
# Now move $k$: each turned hand lands on the ring that marks $PE(p + k)$.
# Last, turn on the transpose. Where do the hands point now?

# %%
pe_lab.explore.RotateByK()

# %% [markdown]
# ## One clock
#
# Take the first two channels, where $\omega = 1$ and the row is $(\sin p, \cos p)$.
# We want $(\sin 8, \cos 8)$, and may use nothing but the numbers of rows 5 and 3.
# Multiply crosswise:

# %%
sin_5, cos_5 = pe[5, :2]
sin_3, cos_3 = pe[3, :2]
moved = torch.stack((sin_5 * cos_3 + cos_5 * sin_3, cos_5 * cos_3 - sin_5 * sin_3))
print(moved.round(decimals=3))
print(pe[8, :2].round(decimals=3))

# %% [markdown]
# Those are the numbers of row 8.
# The rule is the angle-addition identity of school trigonometry, with angles in radians:
#
# $$
# \begin{aligned}
# \sin(\alpha + \beta) &= \sin\alpha\cos\beta + \cos\alpha\sin\beta, \\
# \cos(\alpha + \beta) &= \cos\alpha\cos\beta - \sin\alpha\sin\beta.
# \end{aligned}
# $$ (eq-addition)
#
# All of this chapter hangs on it, so we do not take it on trust.
#
# ````{prf:lemma} Angles add
# :label: lem-addition
#
# The identities {eq}`eq-addition` hold for all real $\alpha$ and $\beta$.
# ````
#
# ````{prf:proof}
# Let $R_\beta$ turn the plane by $\beta$, counterclockwise about the origin.
#
# 1. $R_\beta$ is linear: a turn takes parallelograms to parallelograms and keeps lengths, so it respects sums and
#    multiples of vectors.
# 2. By the definition of sine and cosine, $R_\beta(1, 0) = (\cos\beta, \sin\beta)$.
# 3. Let $Q$ be the quarter turn, $Q(x, y) = (-y, x)$. Turns may be done in either order, so
#    $R_\beta(0, 1) = R_\beta\,Q(1, 0) = Q\,R_\beta(1, 0)$, which is $(-\sin\beta, \cos\beta)$.
# 4. The point at angle $\alpha$ is $(\cos\alpha, \sin\alpha)$. That is $\cos\alpha$ times $(1, 0)$ plus $\sin\alpha$ times $(0, 1)$.
#    By steps 1 to 3, $R_\beta$ takes it to $\cos\alpha$ times $(\cos\beta, \sin\beta)$ plus $\sin\alpha$ times $(-\sin\beta, \cos\beta)$.
# 5. A turn by $\alpha$ and then by $\beta$ is a turn by $\alpha + \beta$, so the same point is
#    $(\cos(\alpha + \beta), \sin(\alpha + \beta))$.
#
# Compare the coordinates of steps 4 and 5: the second ones give the first identity, the first ones the second.
# ````

# %% [markdown]
# Now set $\alpha = p\,\omega$ and $\beta = k\,\omega$, and write the two lines as one product:
#
# $$
# \begin{pmatrix} \sin (p+k)\omega \\ \cos (p+k)\omega \end{pmatrix}
# =
# \begin{pmatrix} \cos k\omega & \sin k\omega \\ -\sin k\omega & \cos k\omega \end{pmatrix}
# \begin{pmatrix} \sin p\,\omega \\ \cos p\,\omega \end{pmatrix}.
# $$ (eq-block)
#
# The matrix knows the step and the speed of the clock, and not the time: there is no $p$ in it.
# We try the block for $\omega = 1$ at four positions, one of them a million.

# %%
block = pe_lab.rotation_matrix(3, d_model=2)
p = torch.tensor([0, 5, 105, 1_000_000])
clock = pe_lab.sinusoidal(p, 2, dtype=torch.float64)
later = pe_lab.sinusoidal(p + 3, 2, dtype=torch.float64)
torch.allclose(clock @ block.T, later, rtol=0, atol=1e-9)

# %% [markdown]
# The rows of `clock` are vectors lying down, so the matrix stands on their right and transposed: $(M x)^\top = x^\top M^\top$.
#
# ## Which way does it turn?
#
# A textbook's rotation matrix has its minus sign in the *upper right*; ours has it in the lower left.
# Both are correct.
# A textbook writes points as $(\cos, \sin)$, our rows say $(\sin, \cos)$.
# {numref}`fig-rotate-direction` draws six positions both ways.

# %% mystnb={"figure": {"name": "fig-rotate-direction", "caption": "Positions 0 to 5 of the clock with ω = 1. Left: the sine drawn to the right, as in our rows, the hand starts at the top and runs clockwise. Right: the textbook's order starts at the right and runs counterclockwise."}, "image": {"alt": "Two unit circles with six numbered points each; on the left they start at the top and proceed clockwise, on the right they start at the right and proceed counterclockwise."}}
from pe_lab import plots

sin, cos = pe[:6, 0], pe[:6, 1]
ways = {"our order: (sin, cos)": (sin, cos), "textbook: (cos, sin)": (cos, sin)}
with plots.figure(2, size=(6.8, 3.5)) as (fig, axes):
    for ax, (title, (x, y)) in zip(axes, ways.items(), strict=True):
        ax.plot(x, y, "o-", lw=1)
        for n in range(6):
            ax.annotate(n, (1.17 * x[n], 1.17 * y[n]), ha="center", va="center")
        ax.set(title=title, aspect="equal", xlim=(-1.35, 1.35), ylim=(-1.35, 1.35))
        ax.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
fig

# %% [markdown]
# Drawn as $(x, y) = (\sin, \cos)$, a clock starts at twelve and runs clockwise.
# Exchanging the coordinates mirrors the picture, and a mirror turns left turns into right turns.
# With $S = \begin{pmatrix} 0 & 1 \\ 1 & 0 \end{pmatrix}$ and the textbook's matrix $R$, our block is $S\,R\,S$, which is $R^\top$.

# %%
swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
textbook = torch.stack((cos_3, -sin_3, sin_3, cos_3)).reshape(2, 2)
print(torch.allclose(swap @ textbook @ swap, block), torch.allclose(textbook.T, block))

# %% [markdown]
# A paper with the sign elsewhere is right as long as its pairs are in the other order.
# Let the matrix of one convention meet the pairs of the other, and the table moves to $p - k$.
#
# ## All clocks together
#
# A row is $d/2$ clocks side by side, and no clock looks at another:
# the blocks stand along the diagonal of {numref}`fig-rotate-matrices`, with zeros elsewhere.
# Predict which corner changes most from $k = 1$ to $k = 30$.

# %% mystnb={"figure": {"name": "fig-rotate-matrices", "caption": "The shift matrix for d = 16 and three offsets: eight blocks on the diagonal. The blocks of the slow clocks, lower right, stay near the identity."}, "image": {"alt": "Three square heat maps, zero except for two-by-two blocks along the diagonal; the lower right stays close to the identity while the upper left changes."}}
offsets = [1, 3, 30]
matrices = [pe_lab.rotation_matrix(k, d_model=16) for k in offsets]
plots.heatmaps(matrices, titles=[f"k = {k}" for k in offsets], limit=1)

# %% [markdown]
# ````{prf:theorem} A shift is one matrix
# :label: thm-shift
#
# Let $\omega_1, \dots, \omega_{d/2}$ be any real numbers, and let $PE(p)$ consist of the pairs
# $(\sin p\,\omega_i, \cos p\,\omega_i)$. For every real $k$ let $M_k$ be block-diagonal with the blocks
#
# $$
# B_i(k) = \begin{pmatrix} \cos k\omega_i & \sin k\omega_i \\ -\sin k\omega_i & \cos k\omega_i \end{pmatrix}.
# $$
#
# Then $PE(p + k) = M_k\,PE(p)$ for every real $p$.
# ````
#
# ````{prf:proof}
# We follow one pair through the product.
#
# 1. $M_k$ is block-diagonal, so pair $i$ of $M_k\,PE(p)$ is $B_i(k)$ times pair $i$ of $PE(p)$, and no other pair enters.
# 2. By the definition of the matrix product, that pair consists of
#    $\cos k\omega_i\sin p\omega_i + \sin k\omega_i\cos p\omega_i$ and $-\sin k\omega_i\sin p\omega_i + \cos k\omega_i\cos p\omega_i$.
# 3. By {prf:ref}`lem-addition` with $\alpha = p\,\omega_i$ and $\beta = k\,\omega_i$, these are
#    $\sin(p + k)\omega_i$ and $\cos(p + k)\omega_i$: pair $i$ of $PE(p + k)$.
#
# Neither $B_i(k)$ nor $M_k$ contains $p$, so one matrix serves all positions.
# ````
#
# Run it at full width: 1900 positions, and offsets forward, backward, far, and half a step.

# %%
p = torch.arange(100, 2000)
table = pe_lab.sinusoidal(p, 512, dtype=torch.float64)
print(len(p), "positions")
for k in [1, 3, 100, -7, 0.5]:
    M = pe_lab.rotation_matrix(k, 512)
    error = (table @ M.T - pe_lab.sinusoidal(p + k, 512, dtype=torch.float64)).abs()
    print(f"k = {k:5}   largest error below 1e-12: {error.max().item() < 1e-12}")

# %% [markdown]
# Read the theorem again for what it does *not* ask.
# It mentions neither 10000 nor a range of frequencies, nor that sines and cosines alternate.
# A widespread statement says that these choices exist to make shifts linear.
# Give the theorem eight random frequencies, and the other channel order:

# %%
omega = 3 * torch.rand(8, generator=torch.Generator().manual_seed(0)).double()
odd_one = pe_lab.sinusoidal(
    2000, 16, inv_freq=omega, order="halves", dtype=torch.float64
)
C, S = torch.diag((3 * omega).cos()), torch.diag((3 * omega).sin())
M = torch.cat((torch.cat((C, S), dim=1), torch.cat((-S, C), dim=1)))
torch.allclose(odd_one[:-3] @ M.T, odd_one[3:], rtol=0, atol=1e-9)

# %% [markdown]
# The matrix exists; with all sines first it merely has its blocks spread over four quarters.
# What makes shifts linear is that every sine has the cosine of the *same* angle beside it.
# The base and its range decide something else: how well near and far positions can be told apart.
#
# ## Steps add up
#
# Three steps and then two are five, so we expect $M_2 M_3 = M_5$, and a way back.
# Before you run the cell: what is $\det M_3$, and which matrix undoes $M_3$?

# %%
M_2, M_3, M_5 = (pe_lab.rotation_matrix(k, d_model=64) for k in (2, 3, 5))
back = pe_lab.rotation_matrix(-3, d_model=64)
print("M2 M3 = M5:  ", torch.allclose(M_2 @ M_3, M_5, rtol=0, atol=1e-14))
print("M3ᵀ = M(−3): ", torch.allclose(M_3.T, back, rtol=0, atol=1e-15))
print("M3ᵀ M3 = I:  ", torch.allclose(M_3.T @ M_3, torch.eye(64).double()))
print("det M3:      ", f"{torch.linalg.det(M_3).item():.6f}")

# %% [markdown]
# ````{prf:theorem} The shifts form a group
# :label: thm-group
#
# For all real $j$ and $k$: $M_j M_k = M_{j+k}$, $M_0 = I$, $M_k^{-1} = M_{-k} = M_k^\top$, and $\det M_k = 1$.
# ````
#
# ````{prf:proof}
# All these matrices have the same block structure, so it is enough to look at one block $B(k)$.
#
# 1. *Product.* Multiply $B(j)$ by the first column of $B(k)$, which is $(\cos k\omega, -\sin k\omega)$:
#    the entries are $\cos j\omega\cos k\omega - \sin j\omega\sin k\omega$
#    and $-(\sin j\omega\cos k\omega + \cos j\omega\sin k\omega)$. By {eq}`eq-addition` this is the first column of $B(j + k)$.
#    The second column works alike.
# 2. *Neutral element.* $\cos 0 = 1$ and $\sin 0 = 0$, so $B(0)$ is the identity.
# 3. *Inverse.* By 1 and 2, $B(k)B(-k) = B(0) = I$.
# 4. *Transpose.* Cosine is even and sine is odd, so passing from $k$ to $-k$ changes the signs of the two sines and nothing else.
#    In $B$ that exchanges the two entries off the diagonal: $B(-k) = B(k)^\top$.
# 5. *Determinant.* $\det B(k) = \cos^2 k\omega + \sin^2 k\omega = 1$, and $\det M_k$ is the product over the blocks.
# ````
#
# By step 4, $M_k$ is *orthogonal*: it keeps lengths and angles.
# All rows are equally long, and from $p$ to $p + k$ it is equally far for every $p$.
# By step 5 it mirrors nothing: it is a rotation, in $d/2$ planes at once.

# %%
p = torch.arange(1000)
now, then = (pe_lab.sinusoidal(q, 64, dtype=torch.float64) for q in (p, p + 3))
step = then - now
length = step.norm(dim=1)
print(f"shortest step {length.min():.4f}, longest {length.max():.4f}")
print(f"cosine of two steps: {torch.cosine_similarity(step[0], step[50], dim=0):.3f}")

# %% [markdown]
# Every step has the same length, but the steps from 0 and from 50 point in different directions.
# Going $k$ further is turning, not adding a constant vector.
#
# ## Find the matrix in the data
#
# You are handed a table and not told how it was made.
# Stack rows $p$ into $X$ and rows $p + 3$ into $Y$.
# If there is a shift matrix, $Y = X M_3^\top$, and least squares finds it.
# How many rows does that take for $d = 8$: 4, 7 or 8?

# %%
def report(positions, d_model, k=3):
    before = pe_lab.sinusoidal(positions, d_model, dtype=torch.float64)
    after = pe_lab.sinusoidal(positions + k, d_model, dtype=torch.float64)
    fit = torch.linalg.lstsq(before, after, driver="gelsd")  # copes with any rank
    M = pe_lab.rotation_matrix(k, d_model)
    found = torch.allclose(fit.solution.T, M, rtol=0, atol=1e-3)
    print(f"{len(positions):5} rows: rank {fit.rank:2} of {d_model}, M found: {found}")

for rows in [4, 7, 8, 16, 64]:
    report(torch.arange(rows), d_model=8)

# %% [markdown]
# Eight, and not one less: $X$ needs rank $d$, or the data do not say what $M_3$ does in some direction.
# That eight *consecutive* rows always have full rank has a classic reason.
#
# ````{prf:proposition} d consecutive rows suffice
# :label: prop-rows
#
# Let $0 < \omega_i < \pi$ be distinct. Then any $d$ consecutive rows $PE(p), \dots, PE(p + d - 1)$ are linearly independent,
# and $M_k$ is the only matrix that takes each of them $k$ positions on.
# ````
#
# ````{prf:proof}
# Complex numbers turn the rows into powers.
#
# 1. $\cos x$ and $\sin x$ are combinations of $e^{ix}$ and $e^{-ix}$, and the other way round. So one invertible matrix turns
#    every $PE(p)$ into the powers $z_1^p, \dots, z_d^p$ of the $d$ numbers $e^{\pm i\omega_j}$.
# 2. These numbers are distinct: for $0 < \omega_j < \pi$ the points $e^{i\omega_j}$ lie on the upper half of the unit circle, at different places,
#    and the points $e^{-i\omega_j}$ are their mirror images on the lower half.
# 3. The rows of powers at $p, \dots, p + d - 1$ form $V D$ with the Vandermonde matrix $V$ of $z_1, \dots, z_d$ and
#    $D = \operatorname{diag}(z_1^p, \dots, z_d^p)$.
#    $V$ is invertible because the $z_j$ are distinct, $D$ because none of them is zero.
# 4. Hence the $d$ rows are a basis of $\mathbb{R}^d$, and a linear map is fixed by its values on a basis.
#    By {prf:ref}`thm-shift`, $M_k$ has the values that are asked for.
# ````

# %% [markdown]
# That is exact arithmetic.
# Predict what a computer makes of $d = 64$: first from 1024 consecutive rows, sixteen times what the proposition asks for,
# then from only 128 rows, drawn from a range of 100,000 positions.

# %%
report(torch.arange(1024), d_model=64)
rng = torch.Generator().manual_seed(0)
report(torch.randint(0, 100_000, (128,), generator=rng), d_model=64)

# %% [markdown]
# A thousand rows are not enough, and 128 are.
# The slowest clocks take tens of thousands of positions for a turn; within a thousand their hands hardly move,
# and in floating point they look like mixtures of each other.
# Rows far apart tell them apart.
#
# Keep this in mind: here a thousand positions leave twenty of 64 directions unseen.
# Whatever is fitted on them, by least squares or by gradient descent, is free to do anything there.

# %% [markdown]
# ## What has no such matrix
#
# ### Sines without cosines
#
# Drop the cosines and look at position 0: $\sin 0 = 0$ in every channel, the zero vector.
# A matrix takes the zero vector to itself, but row $k$ is not zero.
# Away from 0 it is no better; here is a single sine, for which a matrix is a factor.

# %%
sine = pe_lab.sinusoidal(1000, 2, dtype=torch.float64)[:, :1]
for k in [1, 2, 3, 44]:
    best = torch.linalg.lstsq(sine[:-k], sine[k:]).solution
    missed = (sine[:-k] @ best - sine[k:]).norm() / sine[k:].norm()
    print(f"k = {k:2}   best factor {best.item():5.2f}   missed {missed.item():.2f}")

# %% [markdown]
# The identity explains the numbers: $\sin(p + k) = \cos k \cdot \sin p + \sin k \cdot \cos p$.
# The best factor is $\cos k$, and the second part, of size $|\sin k|$, is out of reach.
# It is small only where $k$ is near a multiple of $\pi$, like 3 and 44.
# Two numbers per clock, $[\sin, \cos]$, are needed and are enough.

# %% [markdown]
# ### Tables that were drawn, or trained
#
# For any other table we need a fair test.
# We fit the best map on half of the pairs of rows $(p, p + k)$ and measure on the other half.
# The number is the length of what is missed over the length of what was sought: 0 is perfect, and 1 is what "always answer zero" gets.

# %%
def shift_residual(table, k=3):
    before, after = table[:-k], table[k:]
    half = torch.arange(len(before)) % 2 == 0
    best = torch.linalg.lstsq(before[half], after[half], driver="gelsd").solution
    missed = before[~half] @ best - after[~half]
    return (missed.norm() / after[~half].norm()).item()

# %% [markdown]
# A learned table starts as random numbers, and random rows have nothing to do with each other.
# Training changes them.
# The next cell trains a table of 128 rows that three attention heads share; they are told to look 1, 2 and 5 tokens back.
# Nobody asks for three.

# %%
def trained_table(seed, rows=128, width=16, steps=400):
    rng = torch.Generator().manual_seed(seed)
    table = 0.5 * torch.randn(rows, width, generator=rng, dtype=torch.float64)
    heads = torch.randn(3, width, width, generator=rng, dtype=torch.float64) / width
    table.requires_grad_(), heads.requires_grad_()
    optimizer = torch.optim.AdamW([table, heads], lr=0.01, weight_decay=1.0)
    for _ in range(steps):
        loss = 0
        for head, k in zip(heads, [1, 2, 5], strict=True):
            scores = (table @ head) @ table.T
            goal = torch.arange(rows - k)  # token m looks at token m − k
            loss = loss + torch.nn.functional.cross_entropy(scores[k:], goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return table.detach()

# %%
trained = [trained_table(seed) for seed in range(3)]
rng = torch.Generator().manual_seed(1)
tables = {
    "sines and cosines": pe_lab.sinusoidal(128, 16, dtype=torch.float64),
    "random frequencies": odd_one[:128],
    "sines only": pe_lab.sinusoidal(128, 32, dtype=torch.float64)[:, ::2],
    "trained": trained[0],
    "random": torch.randn(128, 16, generator=rng, dtype=torch.float64),
}
missed = {name: shift_residual(table) for name, table in tables.items()}
for name, value in missed.items():
    print(f"{name:20} {value:.1f}")
print("trained, three seeds:", [f"{shift_residual(table):.1f}" for table in trained])

# %% mystnb={"figure": {"name": "fig-rotate-missed", "caption": "What the best matrix for a shift by three misses, on pairs of rows that were not used to find it. All tables have 128 rows of 16 numbers."}, "image": {"alt": "Five horizontal bars: zero for sines with cosines at the book's or at random frequencies, larger for sines alone and for a trained table, and above one for random numbers."}}
plots.bars(list(missed), list(missed.values()), decimals=1, xlabel="share missed")

# %% [markdown]
# {numref}`fig-rotate-missed` has three groups.
# Sines with their cosines miss nothing, whatever the frequencies.
# Random rows do worse than answering zero.
# The trained table lies between: never asked for three, it has come part of the way.
#
# So "sinusoids have shift maps and learned tables have none" is too simple.
# For sinusoids the map is *guaranteed*, exact, and holds where nobody has been.
# A trained table comes near one as far as training rewards it.

# %% [markdown]
# ### Adding instead of turning
#
# Another widespread statement says that $PE(i) + PE(j)$ is close to $PE(i + j)$.
# Try it with one clock in {numref}`fig-rotate-sum`: is the sum of hands 1 and 2 the hand 3?

# %% mystnb={"figure": {"name": "fig-rotate-sum", "caption": "Hands of one clock as points (sin, cos). The sum of hands 1 and 2 points to one and a half and is too long; hand 3 is elsewhere."}, "image": {"alt": "Four arrows from the centre of a circle: hands one, two and three on the circle, and the sum of the first two between them, reaching beyond the circle."}}
hand = pe[:4, :2]
arrows = {"1": hand[1], "2": hand[2], "sum": hand[1] + hand[2], "3": hand[3]}
roles = {"1": "position", "2": "position", "sum": "highlight", "3": "query"}
fig = plots.vectors(arrows, colors=roles, circle=True, size=(6.0, 4.6))
fig.axes[0].set(xlim=(-1.3, 2.1), ylim=(-1.3, 1.3), xlabel="sin", ylabel="cos")
fig

# %% [markdown]
# A sum points *between* its parts.
# The identity says where, with the midpoint $c = (i + j)/2$ and $h = (i - j)/2$:
#
# $$
# \begin{aligned}
# \sin i\omega + \sin j\omega &= 2\cos h\omega \,\sin c\,\omega, \\
# \cos i\omega + \cos j\omega &= 2\cos h\omega \,\cos c\,\omega.
# \end{aligned}
# $$
#
# It is the hand of the midpoint, stretched by a factor that differs from clock to clock.
# Now at $d = 512$: how much of $PE(i + j)$ does the sum miss, how much does $M_j\,PE(i)$ miss,
# and how well does the sum point to the midpoint?

# %%
def row(p, d_model=512):
    return pe_lab.sinusoidal(torch.tensor([p]), d_model, dtype=torch.float64)[0]

for i, j in [(1, 2), (3, 5), (10, 20), (50, 70), (100, 300)]:
    added, goal = row(i) + row(j), row(i + j)
    turned = pe_lab.rotation_matrix(j, 512) @ row(i)
    off = [((x - goal).norm() / goal.norm()).item() for x in (added, turned)]
    middle = torch.cosine_similarity(added, row((i + j) / 2), dim=0).item()
    print(f"{i:3} + {j:3}  sum {off[0]:.2f}  M_j {off[1]:.2f}  midpoint {middle:.2f}")

# %% [markdown]
# The sum misses by 1.09 to 1.50 times the length of the row that it should be; the matrix misses nothing.
# Likewise $PE(p) + PE(k)$ is not row $p + k$, and no other vector added for "$k$ steps" would do.
# Positions add, *angles* add, rows turn.
# In complex numbers: with $z_p = e^{ip\omega}$, going further is the product $z_{p+k} = z_k\,z_p$,
# and {eq}`eq-block` is this product written for $(\sin, \cos)$.

# %%
z = torch.polar(torch.ones(9).double(), torch.arange(9).double())  # ω = 1
print("z3 z5 = z8:  ", torch.allclose(z[3] * z[5], z[8]))
print("z3 + z5 = z8:", torch.allclose(z[3] + z[5], z[8]))

# %% [markdown]
# ### Sinusoids are almost the only ones
#
# Other tables have exact shift maps: a shear takes $(p, 1)$ to $(p + k, 1)$.
# Such rows grow without end.
# Ask in addition that a shift keeps lengths, and clocks are what is left.
#
# ````{prf:proposition} Shifts that keep lengths are clocks
# :label: prop-converse
#
# Let the vectors $T(p) \in \mathbb{R}^d$, $p$ an integer, satisfy $T(p + 1) = M\,T(p)$ with one orthogonal matrix $M$.
# Then, in suitable orthogonal coordinates, $T(p)$ consists of pairs
# $r_i\,(\sin(p\,\omega_i + \varphi_i), \cos(p\,\omega_i + \varphi_i))$ and of single channels that are constant or alternate in sign.
# ````
#
# ````{prf:proof}
# Linear algebra does the work.
#
# 1. Every real orthogonal matrix is, in suitable orthogonal coordinates,
#    block-diagonal with plane rotations and entries $\pm 1$: its real normal form.
#    In a plane we may list the coordinates so that the rotation is a block $B$ with some angle $\omega_i$.
# 2. By repeated use of the assumption, $T(p) = M^p\,T(0)$ for every integer $p$.
# 3. By {prf:ref}`thm-group`, $B(1)^p = B(p)$. The pair of $T(0)$ has some length $r_i$ and can be written $r_i(\sin\varphi_i, \cos\varphi_i)$;
#    by {eq}`eq-block`, $B(p)$ takes it to the stated pair. The powers of $\pm 1$ give the single channels.
# ````
#
# If shifts are to keep lengths, the choice is smaller than it seems: frequencies, phases, loudness.
# {cite:t}`wang2020complex` derive complex exponentials from two similar wishes.

# %% [markdown]
# ## What a head can do with it
#
# A head scores query $m$ against key $n$ by $(W_q x_m)\cdot(W_k x_n)$.
# Let the inputs be rows of the table and nothing else, $W_k = I$ and $W_q = M_{-3}$.
# Then query $m$ becomes $PE(m - 3)$, and the key most like it is the one at $m - 3$.
# The head should look three tokens back.

# %%
table = pe_lab.sinusoidal(64, 64, dtype=torch.float64)
W_q = pe_lab.rotation_matrix(-3, d_model=64)
weights = ((table @ W_q.T) @ table.T).softmax(dim=-1)
looks_at = weights[3:].argmax(dim=-1)
print("row m looks at m − 3:", torch.equal(looks_at, torch.arange(61)))
print(f"row 60 with weight {weights[60].max().item():.3f}")

# %% mystnb={"figure": {"name": "fig-rotate-head", "caption": "Attention weights of a head whose query matrix is the shift by −3, for the first 24 of 64 tokens. Nothing is masked and nothing was learned."}, "image": {"alt": "A heat map of attention weights with one dark diagonal three places below the main diagonal."}}
plots.heatmap(
    weights[:24, :24], xlabel="key n", ylabel="query m", scale="weight", size=(5.2, 4.4)
)

# %% [markdown]
# It does, in {numref}`fig-rotate-head`, without dividing by $\sqrt{d_k}$; a factor on $W_q$ makes the peak as sharp as one likes.
# So $W_q$ and $W_k$ alone *can* say "three back".
# Will training find it?
# The next cell trains $A = W_q^\top W_k$ from zero on positions 0 to 31.
# The scores are linear in $A$, so the loss is convex and luck plays no part.
# What do you expect at positions 32 to 39?

# %%
A = torch.zeros(64, 64, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.Adam([A], lr=0.01)
seen, goal = table[:32], torch.arange(29)
for _ in range(300):
    scores = (seen @ A) @ seen.T
    loss = torch.nn.functional.cross_entropy(scores[3:], goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %%
def share_right(A, start, stop):  # queries start … stop−1, keys 0 … stop−1
    scores = (table[start:stop] @ A) @ table[:stop].T
    hits = scores.argmax(dim=-1) == torch.arange(start, stop) - 3
    return f"{hits.double().mean().item():.2f}"

for name, product in [("trained", A.detach()), ("M(−3)", W_q.T)]:
    known, new = share_right(product, 3, 32), share_right(product, 32, 40)
    print(f"{name:8} right on known positions: {known}, on new ones: {new}")

# %% [markdown]
# All right on the positions it saw, and all wrong on the next eight.
# $M_{-3}$ was within reach of gradient descent, and so were many matrices that do as well on 32 rows.
# It is the hole from before: in directions never seen, the data say nothing.
# {prf:ref}`thm-shift` bounds from below what a model *can* do; it does not promise that training *will*.
# For a guarantee, the rotation has to be built into the score.

# %% [markdown]
# ## A preview of RoPE
#
# {cite:t}`su2021` turn the queries and keys themselves instead of adding rows to the input.
# `pe_lab.apply_rope` turns a pair $(a, b)$ by $p\,\omega_i$ in the textbook's direction, so its matrix is $R_p = M_p^\top$.
# Feeding it unit vectors shows this matrix, and the group law shows what a score sees:
# $R_m^\top R_n = R_{n-m}$.

# %%
def rope_matrix(p, d_model=8):
    ids = torch.full((d_model,), p)
    cos, sin = pe_lab.rope_table(ids, pe_lab.inv_freq(d_model), dtype=torch.float64)
    units = torch.eye(d_model, dtype=torch.float64)[None, None]  # (B, H, L, D)
    return pe_lab.apply_rope(units, cos, sin, layout="interleaved")[0, 0].T

R_10, R_7 = rope_matrix(10), rope_matrix(7)
print("R10 = M10ᵀ:    ", torch.allclose(R_10, pe_lab.rotation_matrix(10, 8).T))
print("R10ᵀ R7 = R(−3):", torch.allclose(R_10.T @ R_7, rope_matrix(-3)))

# %% [markdown]
# Hence $(R_m q)\cdot(R_n k) = q^\top R_{n-m}\,k$: the positions have left, and their difference remains.
# This holds for *any* $q$ and $k$, so no training can lose it.
# The check keeps $m - n = 3$ and moves both far along.

# %%
rng = torch.Generator().manual_seed(0)
q, k = torch.randn(2, 8, generator=rng, dtype=torch.float64)
scores = [(rope_matrix(t + 3) @ q) @ (rope_matrix(t) @ k) for t in (0, 100, 10_000)]
[round(score.item(), 4) for score in scores]

# %% [markdown]
# ## Put the theorem to work
#
# A table of 65,536 positions and 32 clocks takes two million sines and as many cosines.
# The theorem offers a shorter way.
# Position 1000 is $3 \cdot 256 + 232$, so its hands, as complex numbers, are the products of those at 768 and at 232.

# %%
omega = pe_lab.inv_freq(64)

def hands(positions):
    angles = positions.double()[:, None] * omega
    return torch.polar(torch.ones_like(angles), angles)

both = hands(torch.tensor([3 * 256])) * hands(torch.tensor([232]))
torch.allclose(both, hands(torch.tensor([1000])), rtol=0, atol=1e-12)

# %% [markdown]
# Every position below 65,536 is $256\,a + b$ with $a$ and $b$ below 256.
# Two tables of 256 rows, one in coarse steps and one in fine ones, hold all the hands that we need.
# One product for each entry does the rest.

# %%
coarse = hands(256 * torch.arange(256))
fine = hands(torch.arange(256))
long = (coarse[:, None] * fine).flatten(0, 1)
direct = hands(torch.arange(65_536))
print("same table:", torch.allclose(long, direct, rtol=0, atol=1e-10))
print("rows with sines:", len(coarse) + len(fine), "instead of", len(direct))

# %% [markdown]
# `pe_lab.tables` builds all tables of consecutive positions like this, in float64, and rounds once.
# Where they start makes no difference: only the coarse hands change.
# We compare it with the usual way, which multiplies positions by frequencies in float32,
# near five ever larger positions and against a table in float64.

# %%
def float32_table(p):
    angles = p.float()[:, None] * omega.float()
    return angles.cos(), angles.sin()

def largest_error(end, make):
    p = torch.arange(end - 255, end + 1)
    exact = pe_lab.rope_table(p, omega, dtype=torch.float64)  # entry by entry
    errors = [make(p)[n].double() - exact[n] for n in (0, 1)]  # cos, sin
    return torch.stack(errors).abs().max().item()

# %%
ends = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
plain = [largest_error(end, float32_table) for end in ends]
added = [largest_error(end, lambda p: pe_lab.rope_table(p, omega)) for end in ends]
print("angle addition, never above 3.3e-8:", max(added) <= 3.3e-8)
print("float32 product:", [f"{error:.0e}" for error in plain])

# %% mystnb={"figure": {"name": "fig-rotate-error", "caption": "Largest error of a float32 table of cosines and sines, 32 frequencies, near five positions. The plain product loses a digit for every factor of ten; the table by angle addition stays at the rounding of its own entries."}, "image": {"alt": "Two curves on logarithmic axes: one rises in proportion to the position, the other is flat and far below."}}
plots.lines(
    ends,
    {"float32 product": plain, "angle addition": added},
    colors={"float32 product": "content", "angle addition": "highlight"},
    xlabel="position", ylabel="largest error", xlog=True, ylog=True, markers=True,
)  # fmt: skip

# %% [markdown]
# The rising line of {numref}`fig-rotate-error` is no fault of the sine.
# Near a million, neighbouring float32 numbers lie 0.0625 apart, as the cell shows,
# so an angle of that size is off by up to half of this before any sine is taken.
# The rounding of $\omega$ adds its share.
# The flat line made its angles in float64.

# %%
million = torch.tensor(1e6)
(torch.nextafter(million, 2 * million) - million).item()

# %% [markdown]
# ## Compare with real code
#
# `make bench` lets this package, plain PyTorch and four libraries build one table in turns, on one thread.
# Times differ from machine to machine, so the page measures none.
# It reads the stored run and shows *ratios* of CPU time, this package being 1, and the largest error near position $10^6$ against 50 digits.
# Every table is written into memory that was used before: fresh pages from the system have a price of their own, also in the file.

# %%
import json
from pathlib import Path

stored = json.loads(Path("../benchmarks/results/tables.json").read_text("utf-8"))
memory = "reused" if "reused" in stored["timings"] else "default"
times, errors = stored["timings"][memory], stored["max_error"]
for name, error in errors.items():
    print(f"{name:28} time {times[name]['ratio']:4.1f}   error {error['1000000']:.0e}")

# %% mystnb={"figure": {"name": "fig-rotate-benchmark", "caption": "CPU time to build the table of 32,768 positions and 64 frequencies, relative to pe_lab.rope_table, from the stored benchmark run. Copying and filling as many bytes are the bounds set by memory."}, "image": {"alt": "Horizontal bars of relative CPU time: copying and filling memory below one, this package at one, direct evaluation and the other libraries several times longer."}}
names = sorted(times, key=lambda name: times[name]["ratio"])
ratios = [times[name]["ratio"] for name in names]
colors = ["highlight" if name.startswith("pe_lab") else "content" for name in names]
plots.bars(names, ratios, colors=colors, decimals=1, xlabel="CPU time relative to ours")

# %% [markdown]
# In {numref}`fig-rotate-benchmark`, every table with a sine and a cosine for each entry takes longer than the one that multiplies.
# The float32 tables share one error because they share one formula.
# The cell says what was run, which libraries were missing, and how many megabytes each result holds:
# some libraries store every number twice, because their rotation wants it so.

# %%
setting = stored["setting"]
print(setting["length"], "positions,", setting["pairs"], "frequencies,", end=" ")
print(stored["rounds"], "rounds; missing:", list(stored["missing"]) or "none")
for name in errors:
    print(f"{name:28} {stored['megabytes'][name]:3.0f} MB")

# %% [markdown]
# And nobody multiplies by $M_k$: all but $2d$ of its entries are zero.
# Fast code views pairs of channels as complex numbers, and so can we.
# The pair $(\sin\theta, \cos\theta)$, read as $\sin\theta + i\cos\theta = i\,e^{-i\theta}$,
# is shifted by the factor $e^{-ik\omega}$, with a minus because our clocks run clockwise.

# %%
table = pe_lab.sinusoidal(100, 64, dtype=torch.float64)
pairs = torch.view_as_complex(table.unflatten(-1, (-1, 2)))
turned = pairs * torch.polar(torch.ones_like(omega), -3 * omega)
shifted = torch.view_as_real(turned).flatten(-2)
later = pe_lab.sinusoidal(torch.arange(3, 103), 64, dtype=torch.float64)
torch.allclose(shifted, later)

# %% [markdown]
# ## Common mistakes
#
# **The transposed matrix.**
# $M_k^\top$ is a perfect shift matrix: the one for $-k$.
# A sign in the wrong corner or a textbook's matrix give it, and length, shape and determinant stay right.
#
# **Row vectors on the wrong side.**
# Mathematics writes columns, tables hold rows.
# `table @ M` runs, has the right shape, and moves every row *back*.

# %%
M_3 = pe_lab.rotation_matrix(3, d_model=4)
wrong, right = M_3.T @ pe[10], M_3 @ pe[10]
print("wrong is row 7: ", torch.allclose(wrong, pe[7]))
print("right is row 13:", torch.allclose(right, pe[13]))
wrong, right = pe[10:20] @ M_3, pe[10:20] @ M_3.T
print("wrong is rows 7 to 16: ", torch.allclose(wrong, pe[7:17]))
print("right is rows 13 to 22:", torch.allclose(right, pe[13:23]))

# %% [markdown]
# **The matrix of another channel order.**
# A table with all sines first needs a matrix with its blocks spread accordingly.
# The matrix for alternating channels fits in shape, and mixes clocks that have nothing to do with each other.

# %%
halves = pe_lab.sinusoidal(20, 4, order="halves", dtype=torch.float64)
right = pe_lab.rotation_matrix(3, 4, order="halves")
print("wrong:", torch.allclose(M_3 @ halves[10], halves[13]))
print("right:", torch.allclose(right @ halves[10], halves[13]))

# %% [markdown]
# **Degrees, and `rot90`.**
# Frequencies are in radians per position: taken as degrees, the fastest clock needs 360 steps for a turn and not 6.28.
# And `torch.rot90`, which is sometimes recommended for RoPE, turns the *axes of a tensor* by a quarter, as one turns a photograph.
# It rotates no pair by any angle.

# %%
x = torch.arange(8).reshape(2, 4)
print("rot90:", tuple(x.shape), "becomes", tuple(torch.rot90(x).shape))
print(f"steps for a turn: {2 * torch.pi:.2f}, in degrees {360}")

# %% [markdown]
# **An odd width.**
# With an odd $d_\text{model}$ the last sine has no cosine, and you know what that means.
# The package makes such tables, and refuses the matrix:

# %%
import textwrap

try:
    pe_lab.rotation_matrix(3, d_model=7)
except ValueError as error:
    print(textwrap.fill(str(error), width=72))

# %% [markdown]
# ## Exercises
#
# Each stub runs as it is.
# Replace the dots, run the cell, and `check` names the kind of mistake if there is one.

# %% [markdown]
# `````{exercise} One clock, k steps on ★
# :label: ex-05-block
#
# Write `block(offset, omega)`: the two-by-two matrix that takes $(\sin p\,\omega, \cos p\,\omega)$ to the pair at $p + $ `offset`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Write out $\sin(p\omega + k\omega)$ with {eq}`eq-addition`, and collect what stands before $\sin p\omega$ and before $\cos p\omega$.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# The first row of the matrix makes the sine, the second makes the cosine.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Test it: with offset 0 it is the identity, and its first column is what it makes of $(1, 0)$, the hand with sine 1.
# ````
# `````

# %% tags=["exercise"]
def block(offset, omega):
    """Takes (sin pω, cos pω) to (sin (p + offset)ω, cos (p + offset)ω)."""
    ...


pe_lab.check("05-block", block)
# %% [markdown]
# ````{solution} ex-05-block
# :class: dropdown
#
# ```python
# def block(offset, omega):
#     """Takes (sin pω, cos pω) to (sin (p + offset)ω, cos (p + offset)ω)."""
#     angle = torch.tensor(offset * omega, dtype=torch.float64)
#     cos, sin = angle.cos(), angle.sin()
#     return torch.stack((cos, sin, -sin, cos)).reshape(2, 2)
#
#
# pe_lab.check("05-block", block)
# ```
# ````

# %% [markdown]
# `````{exercise} Shift a whole table ★
# :label: ex-05-rows
#
# Write `shift_rows(table, k)`: every row of a table $(L, d)$ moved $k$ positions on.
# The table may start at any position, and nobody tells you which.
# You may use `pe_lab.rotation_matrix`.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# For one row as a column vector it is $M_k\,x$. What is its transpose?
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# $(M_k x)^\top = x^\top M_k^\top$, and the table is many $x^\top$ on top of each other.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# The width of the table is `table.shape[-1]`.
# ````
# `````

# %% tags=["exercise"]
def shift_rows(table, k):
    """The rows PE(p + k) from the rows PE(p)."""
    ...


pe_lab.check("05-rows", shift_rows)
# %% [markdown]
# ````{solution} ex-05-rows
# :class: dropdown
#
# ```python
# def shift_rows(table, k):
#     """The rows PE(p + k) from the rows PE(p)."""
#     return table @ pe_lab.rotation_matrix(k, table.shape[-1]).T
#
#
# pe_lab.check("05-rows", shift_rows)
# ```
# ````

# %% [markdown]
# `````{exercise} Find the matrix in the data ★★
# :label: ex-05-fit
#
# `before` and `after` are $(n, d)$ tables of rows, and some matrix $M$ takes each row of the first, as a column vector,
# to the same row of the second.
# Write `recover(before, after)`, which returns $M$.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# In rows, the relation reads `before @ M.T == after`.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# `torch.linalg.lstsq(A, B).solution` is the $X$ with $AX \approx B$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# That $X$ is $M^\top$.
# ````
# `````

# %% tags=["exercise"]
def recover(before, after):
    """The M with after[n] = M @ before[n] for every row n."""
    ...


pe_lab.check("05-fit", recover)
# %% [markdown]
# ````{solution} ex-05-fit
# :class: dropdown
#
# ```python
# def recover(before, after):
#     """The M with after[n] = M @ before[n] for every row n."""
#     return torch.linalg.lstsq(before, after).solution.T
#
#
# pe_lab.check("05-fit", recover)
# ```
# ````

# %% [markdown]
# `````{exercise} A head that looks three back ★★
# :label: ex-05-look
#
# The keys are rows of the table, $d_\text{model} = 16$.
# Give a matrix `W_q` such that the score $(W_q\,PE(m))\cdot PE(n)$ is largest at $n = m - 3$, for every $m \ge 3$.
# There are many; one of them is in this chapter, the others are multiples or more.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# $PE(a)\cdot PE(n)$ is largest at $n = a$, because all rows have one length.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# So $W_q\,PE(m)$ should be $PE(m - 3)$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `pe_lab.rotation_matrix` takes negative offsets.
# ````
# `````

# %% tags=["exercise"]
W_q = ...

pe_lab.check("05-look", W_q)
# %% [markdown]
# ````{solution} ex-05-look
# :class: dropdown
#
# ```python
# W_q = pe_lab.rotation_matrix(-3, d_model=16)
#
# pe_lab.check("05-look", W_q)
# ```
# ````

# %% [markdown]
# `````{exercise} A long table from two short ones ★★
# :label: ex-05-add
#
# `coarse[a]` holds the pairs $(\sin, \cos)$ of position $aB$ and `fine[b]` those of position $b = 0 \dots B - 1$;
# their shapes are $(A, P, 2)$ and $(B, P, 2)$.
# Write `add_angles(coarse, fine)`, which returns the pairs of positions $0 \dots AB - 1$, shape $(AB, P, 2)$, without calling sine or cosine.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# Take sines and cosines apart: `coarse[..., 0]` and `coarse[..., 1]`.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# `coarse[:, None]` has shape $(A, 1, P, 2)$: beside `fine`, every $a$ meets every $b$.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# Apply {eq}`eq-addition`, stack both results in a last axis, and `flatten(0, 1)`.
# ````
# `````

# %% tags=["exercise"]
def add_angles(coarse, fine):
    """Pairs (sin, cos) at a·B + b from those at a·B and at b."""
    ...


pe_lab.check("05-add", add_angles)
# %% [markdown]
# ````{solution} ex-05-add
# :class: dropdown
#
# ```python
# def add_angles(coarse, fine):
#     """Pairs (sin, cos) at a·B + b from those at a·B and at b."""
#     sin_a, cos_a = coarse[:, None].unbind(-1)
#     sin_b, cos_b = fine.unbind(-1)
#     sin = sin_a * cos_b + cos_a * sin_b
#     cos = cos_a * cos_b - sin_a * sin_b
#     return torch.stack((sin, cos), dim=-1).flatten(0, 1)
#
#
# pe_lab.check("05-add", add_angles)
# ```
# ````

# %% [markdown]
# `````{exercise} How far apart are two rows? ★★★
# :label: ex-05-offset
#
# You get two rows of one table, $PE(p)$ and $PE(p + k)$, and are told neither $p$ nor $k$, only that $|k| \le 1000$.
# Write `offset_between(before, after)`, which returns $k$.
#
# ````{admonition} Hint 1
# :class: dropdown hint
# If $M_k\,$`before` is `after`, then their product is as large as products of rows get.
# ````
#
# ````{admonition} Hint 2
# :class: dropdown hint
# There are only 2001 candidates. Try them all.
# ````
#
# ````{admonition} Hint 3
# :class: dropdown hint
# `pe_lab.rotation_matrix` takes a tensor of offsets and returns one matrix for each.
# ````
# `````

# %% tags=["exercise"]
def offset_between(before, after):
    """The k from −1000 to 1000 with after = M_k @ before."""
    ...


pe_lab.check("05-offset", offset_between)
# %% [markdown]
# ````{solution} ex-05-offset
# :class: dropdown
#
# ```python
# def offset_between(before, after):
#     """The k from −1000 to 1000 with after = M_k @ before."""
#     offsets = torch.arange(-1000, 1001)
#     moved = pe_lab.rotation_matrix(offsets, len(before)) @ before
#     return offsets[(moved @ after).argmax()]
#
#
# pe_lab.check("05-offset", offset_between)
# ```
# ````

# %% [markdown]
# ## Quiz
#
# 1. What does $M_k$ depend on? (a) on $p$ and $k$; (b) on $k$ and the frequencies; (c) on $k$ and the length of the table.
#
# ````{admonition} Answer 1
# :class: dropdown
# **b.** The block {eq}`eq-block` contains $k\,\omega$ and nothing else. Not a: that $p$ is missing is the whole theorem. Not c: the rows exist
# for every real $p$; no table has to end.
# ````
#
# 2. You compute `table @ M` with the matrix for $k = 5$. Row 20 comes out as (a) row 25; (b) row 15; (c) an error, since the shapes do not fit.
#
# ````{admonition} Answer 2
# :class: dropdown
# **b.** For rows, `table @ M` applies $M^\top = M_{-5}$. Not a: that would be `table @ M.T`. Not c: the matrix is square,
# so both products exist, and this is why
# the mistake goes unnoticed.
# ````
#
# 3. A table has a shift matrix for every $k$. What follows? (a) it is sinusoidal; (b) its frequencies fall geometrically; (c) neither.
#
# ````{admonition} Answer 3
# :class: dropdown
# **c.** Not a: the rows $(p, 1)$ have shift matrices, which are shears;
# lengths must be kept before {prf:ref}`prop-converse` applies. Not b: {prf:ref}`thm-shift`
# holds for any frequencies, and the cell with random ones agrees.
# ````

# %% [markdown]
# 4. A model with a sinusoidal table fails beyond the trained length. Does this contradict {prf:ref}`thm-shift`? (a) yes, the relation is exact
#    everywhere; (b) no, the theorem says what weights can express, not what training finds; (c) no, it holds only at trained positions.
#
# ````{admonition} Answer 4
# :class: dropdown
# **b.** The trained product of this chapter is right on 32 positions and wrong right after them,
# beside an exact matrix that is right everywhere. Not a: what can be
# expressed need not be chosen. Not c: the theorem holds for every real $p$.
# ````
#
# 5. Why is a float32 table wrong in the second decimal near position $10^6$? (a) the sine loses accuracy for large angles;
#    (b) the product $p\,\omega$
#    is rounded before the sine is taken; (c) float32 cannot hold a million.
#
# ````{admonition} Answer 5
# :class: dropdown
# **b.** Angles of that size lie on a grid of width 0.0625. Not a: given its rounded angle,
# the sine is right to the last digits. Not c: all integers up to
# $2^{24}$ are float32 numbers; the product with $\omega$ is not.
# ````

# %% [markdown]
# ## Take-away
#
# - $PE(p + k) = M_k\,PE(p)$, with blocks that hold $k\omega_i$ and no $p$. The proof is the angle-addition identity.
# - $M_j M_k = M_{j+k}$ and $M_k^{-1} = M_k^\top = M_{-k}$: rotations. In $(\sin, \cos)$ order they run clockwise.
# - It takes sine *and* cosine, and turning instead of adding. Sinusoids guarantee it; a trained table may come near;
#   that it can be expressed does not mean that it is learned.
# - The theorem pays: tables by angle addition are right to the last float32 digit, and faster than a sine for each entry.
#
# {numref}`fig-rotate-turns` is the chapter in one picture.

# %% mystnb={"figure": {"name": "fig-rotate-turns", "caption": "Four clocks (d = 8, base 30) at p and at p + 3, for two different p. The hands differ between the rows; the shaded turn of each clock is the same in both."}, "image": {"alt": "Two rows of four dials; in each column the shaded sector between the two hands has the same size, although the hands point elsewhere."}}
from matplotlib.patches import Wedge

speeds = pe_lab.inv_freq(8, base=30).tolist()
with plots.figure(4, 2, size=(6.8, 3.7)) as (fig, axes):
    for n, ax in enumerate(axes):
        p, speed = (5, 40)[n // 4], speeds[n % 4]
        turns = torch.tensor([p, p + 3]) * speed
        start, stop = (90 - turns.rad2deg()).tolist()  # from 3 o'clock, against time
        gold = plots.color("highlight")
        ax.add_patch(Wedge((0, 0), 1, stop, start, color=gold, alpha=0.5))
        ax.add_patch(Wedge((0, 0), 1, 0, 360, fill=False, color="#BDBDBD"))
        for angle in turns:
            ax.plot([0, angle.sin()], [0, angle.cos()], color=plots.color("position"))
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
        ax.set_title(f"ω = {speed:.2f}" if n < 4 else "", loc="center")
        ax.axis("off")
        if n % 4 == 0:
            ax.text(-1.3, 0, f"p = {p}", ha="right", va="center")
fig

# %% [markdown]
# ## Further reading
#
# - {cite:t}`vaswani2017`, section 3.5: one sentence states the property, as the reason for choosing sinusoids.
# - {cite:t}`wang2020complex`: which functions of position admit position-free shifts and stay bounded? Complex exponentials,
#   with frequencies that can be learned.
# - {cite:t}`wang2021`: three properties that position embeddings may have, translation invariance among them, compared for seven kinds of them
#   in BERT.
# - {cite:t}`yan2019`: the product of two rows ignores direction, and the projections of a head destroy its dependence on distance alone.
# - {cite:t}`su2021`: builds the rotation into the score; the group law is its heart.
# - {cite:t}`tancik2020`: the same features for coordinates in general, seen through the kernel that they define.

# %% tags=["nbval-ignore-output"] reason="versions and processors differ from machine to machine"
pe_lab.provenance()
