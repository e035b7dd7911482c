"""The front door: which kind a subject is of, in which time, and that nothing is harmed."""

import contextlib
import random
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import pe_lab
from pe_lab.doctor import Report, diagnose
from pe_lab.doctor.mutants import KINDS, healthy

torch.set_num_threads(1)


def turn(x, positions):
    """A rotation with its halves paired, as released code writes it."""
    w = 10000.0 ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1])
    angles = torch.cat([positions[..., None] * w] * 2, -1)
    if positions.dim() == 2:
        angles = angles[:, None]
    a, b = x.chunk(2, -1)
    return (x * angles.cos() + torch.cat((-b, a), -1) * angles.sin()).to(x.dtype)


def bias(q_len, k_len):
    distance = torch.arange(k_len) - torch.arange(k_len - q_len, k_len)[:, None]
    return pe_lab.alibi_slopes(8).float()[:, None, None] * distance.clamp(max=0)


class Add(nn.Module):
    def forward(self, x):
        return x + pe_lab.sinusoidal(x.shape[1], x.shape[2]).to(x)


class Attend(nn.Module):
    """Causal attention of two heads of 32 channels, with a rotation."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 32)).permute(2, 0, 3, 1, 4)
        ids = torch.arange(x.shape[1])
        q, k = turn(q, ids), turn(k, ids)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.attend = nn.Embedding(50, 64), Attend()
        self.head = nn.Linear(64, 50)

    def forward(self, ids):
        x = self.tokens(ids)
        return self.head(x + self.attend(x))


CONFIG = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2,
          "num_hidden_layers": 2, "rope_theta": 1e4}  # fmt: skip
TYPICAL = {
    "table": lambda: lambda length, width: pe_lab.sinusoidal(length, width),
    "add": Add,
    "rope": lambda: turn,
    "bias": lambda: bias,
    "slopes": lambda: pe_lab.alibi_slopes,
    "attention": Attend,
    "model": Model,
    "config": lambda: CONFIG,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_known_by_its_typical_subject(kind):
    """Without being told; and nothing is wrong with it."""
    report = diagnose(TYPICAL[kind](), seconds=20)
    assert report.kind == kind
    assert report.severity not in ("wrong", "risky"), report
    assert [n for n in report.not_applicable if n.check == "D-ERROR"] == []


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("attention", "model")])
def test_kinds_are_known_by_every_correct_subject_of_the_catalogue(kind):
    """With sizes, where the catalogue gives them, and without the kind."""
    seen = {h.name: diagnose(h.make(), **h.options).kind for h in healthy(kind)[:25]}
    assert {n: k for n, k in seen.items() if k != kind} == {}


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (None, "got NoneType"),
        (torch.zeros(4, 4), "got Tensor"),
        ("nowhere.json", "got nowhere.json"),
        (lambda: 3, "takes 0 positional arguments"),
        (lambda *a, **k: None, "config: a Hugging Face config"),
        (nn.Linear(7, 9), "got Linear"),
        (object(), "got object"),
        (type("Empty", (), {}), "got Empty"),
    ],
)
def test_what_is_of_no_kind_is_refused_with_all_that_was_tried(subject, words):
    with pytest.raises(ValueError, match="of a kind that can be examined") as refusal:
        diagnose(subject, seconds=10)
    told = str(refusal.value)
    assert words in told and "Adapt the call by a lambda" in told
    assert all(f"\n  {kind}: " in told for kind in KINDS)


def test_of_a_named_kind_only_that_is_tried():
    with pytest.raises(ValueError) as refusal:
        diagnose(lambda: 3, kind="rope")
    assert "\n  rope: " in str(refusal.value) and "slopes" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"kind": "dance"}, "kind needs"), ({"seconds": -1}, "seconds needs")],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        diagnose(turn, **options)


@pytest.mark.parametrize(
    ("kind", "expected", "check"),
    [
        ("rope", {"base": 5e5}, "D-BASE"),
        ("rope", {"layout": "interleaved"}, "D-LAYOUT"),
        ("table", {"base": 5e5}, "D-BASE"),
        ("config", {"base": 5e5}, "D-BASE"),
    ],
)
def test_what_is_expected_is_compared(kind, expected, check):
    report = diagnose(TYPICAL[kind](), kind=kind, expected=expected)
    assert report.findings[0].check == check and report.severity == "wrong"
    right = {name: report.identity[name] for name in expected}
    again = diagnose(TYPICAL[kind](), kind=kind, expected=right)
    assert again.severity not in ("wrong", "risky"), again


def state():
    """Everything global that an examination could have changed."""
    return (
        torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()),
        torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads(),
        torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"),
    )  # fmt: skip


def spoil():
    """Change all of it."""
    torch.rand(3), random.random(), np.random.rand()
    torch.manual_seed(7), torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("meta"), torch.set_grad_enabled(False)
    torch.set_num_threads(2)


def test_what_a_subject_changes_is_restored():
    def careless(x, positions):
        y = turn(x, positions)
        spoil()
        return y

    before = state()
    assert diagnose(careless, kind="rope").kind == "rope"
    assert state() == before


def test_a_module_is_left_in_its_mode_with_its_weights_gradients_and_hooks():
    model = Attend().train()
    model.out.eval()
    model(torch.randn(1, 3, 64)).sum().backward()
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    weights = {n: p.clone() for n, p in model.state_dict().items()}
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
    diagnose(model, kind="attention", seconds=10)
    assert model.training and not model.out.training
    assert all(torch.equal(p, weights[n]) for n, p in model.state_dict().items())
    assert all(torch.equal(p.grad, gradients[n]) for n, p in model.named_parameters())
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_memory_of_a_subject_stays_its_own():
    """Copies may remember what they were asked; the subject was asked nothing."""

    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []

        def forward(self, x):
            self.seen.append(x.shape)
            return Add()(x)

    subject = Remembers()
    diagnose(subject, seconds=10)
    assert subject.seen == []


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "config"])
def test_a_subject_that_hangs_is_left_after_its_seconds(kind):
    def hang(*_):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    start = time.monotonic()
    with pytest.raises(ValueError, match="did not come back in time|no time was left"):
        diagnose(hang, kind=kind, seconds=0.5)
    assert time.monotonic() - start < 3


def test_time_that_runs_out_later_leaves_a_report_that_says_so():
    calls = []

    def slow(x, positions):
        calls.append(1)
        time.sleep(0.02 if len(calls) < 20 else 0.3)
        return turn(x, positions)

    start = time.monotonic()
    report = diagnose(slow, kind="rope", seconds=1.5)
    assert time.monotonic() - start < 5
    assert any(f.check == "D-TIME" for f in report.findings)


def test_ctrl_c_is_the_users():
    """It ends the examination, and what was changed until then is restored."""

    def interrupted(x, positions):
        spoil()
        raise KeyboardInterrupt

    before = state()
    with pytest.raises(KeyboardInterrupt):
        diagnose(interrupted, kind="rope")
    assert state() == before


def test_a_check_that_stumbles_is_told_and_the_others_are_made(monkeypatch):
    from pe_lab.doctor import slopes

    def stumbles(patient):
        raise ZeroDivisionError("of the check")

    checks = (stumbles, *slopes.KIND.checks)
    broken = type(slopes.KIND)(**{**vars(slopes.KIND), "checks": checks})
    monkeypatch.setattr(slopes, "KIND", broken)
    report = diagnose(pe_lab.alibi_slopes, kind="slopes")
    assert report.passed
    (told,) = [n for n in report.not_applicable if n.check == "D-ERROR"]
    assert "stumbles was not made: ZeroDivisionError" in told.why


class Odd(BaseException):
    """What no `except Exception` catches."""


def endless(n):
    return endless(n + 1)


def damage(x):
    """Write into every tensor that was given."""
    for t in x:
        if isinstance(t, torch.Tensor) and t.numel():
            t.fill_(3)


def raising(error):
    def fault(result, given):
        raise error

    return fault


FAULTS = {
    "raises": raising(RuntimeError("size mismatch\nsecond line")),
    "raises without words": raising(ValueError()),
    "exits": raising(SystemExit(1)),
    "stops": raising(StopIteration()),
    "raises what is no Exception": raising(Odd("odd")),
    "recurses": lambda y, given: endless(0),
    "NaN": lambda y, given: y * torch.nan if isinstance(y, torch.Tensor) else y,
    "infinite": lambda y, given: y * torch.inf if isinstance(y, torch.Tensor) else y,
    "None": lambda y, given: None,
    "text": lambda y, given: "a tensor",
    "number": lambda y, given: 3.0,
    "array": lambda y, given: np.asarray(y),
    "itself": lambda y, given: given[0],
    "pair": lambda y, given: (y, None),
    "list of lists": lambda y, given: [[1], [2, 3]],
    "scalar": lambda y, given: torch.tensor(1.0),
    "empty": lambda y, given: y[..., :0] if isinstance(y, torch.Tensor) else [],
    "longer": lambda y, given: torch.cat((y, y)) if isinstance(y, torch.Tensor) else y,
    "transposed": lambda y, given: y.mT if getattr(y, "ndim", 0) > 1 else y,
    "whole": lambda y, given: y.long() if isinstance(y, torch.Tensor) else y,
    "complex": lambda y, given: y + 1j if isinstance(y, torch.Tensor) else y,
    "half": lambda y, given: y.half() if isinstance(y, torch.Tensor) else y,
    "meta": lambda y, given: y.to("meta") if isinstance(y, torch.Tensor) else y,
    "sparse": lambda y, given: y.to_sparse() if isinstance(y, torch.Tensor) else y,
    "huge": lambda y, given: torch.zeros(1).expand(2**36),
    "another class": lambda y, given: type("T", (), {"shape": (2, 2)})(),
    "damages": lambda y, given: damage(given) or y,
    "spoils": lambda y, given: spoil() or y,
    "random": lambda y, given: y + torch.randn(()) if isinstance(y, torch.Tensor) else y,
}  # fmt: skip


class Faulty:
    """A typical subject that fails from its n-th call on, on every k-th."""

    def __init__(self, kind, fault, start, every):
        self.inner = TYPICAL[kind]()
        self.fault, self.start, self.every = fault, start, every
        self.calls = 0

    def __call__(self, *given):
        self.calls += 1
        late = self.calls - self.start
        y = self.inner(*given)
        return FAULTS[self.fault](y, given) if late >= 0 == late % self.every else y


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([k for k in KINDS if k != "config"]),
    st.sampled_from(list(FAULTS)),
    st.sampled_from([1, 2, 3, 8, 30]),
    st.sampled_from([1, 3]),
    st.booleans(),
)
def test_whatever_a_subject_does_there_is_a_report_or_a_sentence(
    kind, fault, start, every, named
):
    """In 0.7 s each, and nothing global is changed."""
    subject, before = Faulty(kind, fault, start, every), state()
    try:
        report = diagnose(subject, kind=kind if named else None, seconds=0.7)
    except ValueError as refusal:
        assert "of a kind that can be examined" in str(refusal)
        return
    finally:
        assert state() == before
    assert isinstance(report, Report) and str(report) and report.to_html()
    if start == every == 1:  # what is steady; the erratic may differ between any two
        assert [n for n in report.not_applicable if n.check == "D-ERROR"] == []
