"""The doctor on rotations: mutants named, correct ones left in peace, peers' defects."""

import time
from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pe_lab
from pe_lab.doctor import diagnose
from pe_lab.doctor.confusion import outcomes, rates
from pe_lab.doctor.guard import Guard
from pe_lab.doctor.mutants import healthy, mutants
from pe_lab.doctor.rope import KIND

torch.set_num_threads(1)
ALARMS = ("wrong", "risky")


# The first finding names it; the second is the other face of the same line.
TWO_FACES = {"dtype of the first call kept"}


@pytest.mark.parametrize("mutant", mutants("rope"), ids=lambda m: m.name)
def test_mutant_is_found_and_named(mutant):
    """One alarm for one bug; it names the bug, and says how to mend it and where."""
    report = diagnose(mutant.make(), kind="rope", **mutant.options)
    alarms = [f for f in report.findings if f.severity in ALARMS]
    assert len(alarms) == 1 + (mutant.name in TWO_FACES), report
    assert alarms[0].check in mutant.checks, report
    assert all(f.remedy and f.chapter for f in alarms if f.check != "D-INPUT")


@pytest.mark.parametrize("patient", healthy("rope"), ids=lambda h: h.name)
def test_correct_rotation_is_left_in_peace(patient):
    """No alarm, and called what it is; numbers within a thousandth."""
    report = diagnose(patient.make(), kind="rope", **patient.options)
    assert report.severity not in ALARMS, report
    for name, value in patient.identity.items():
        wanted = pytest.approx(value, rel=1e-3) if type(value) is float else value
        assert report.identity[name] == wanted, report


def test_rates_of_the_whole_catalogue():
    """The targets: 95 % found, 90 % named, no false alarm."""
    found = rates(outcomes([*mutants("rope"), *healthy("rope")]))
    assert found["detected"] >= 0.95
    assert found["named"] >= 0.9
    assert found["false alarms"] == 0


@settings(max_examples=25)
@given(
    st.sampled_from([8, 16, 32, 64, 96, 128]),
    st.sampled_from(["half", "interleaved"]),
    st.sampled_from([1e4, 5e5, 1e6]),
    st.sampled_from([1, 2, 4]),
)
def test_settings_are_read_off(head_dim, layout, base, share):
    """Whatever RoPE was built with is what the report says; told so, it is content."""
    width = max(4, head_dim // share)
    turn = pe_lab.RoPE(head_dim, base=base, layout=layout, rotary_dim=width)
    settings = {"layout": layout, "base": base, "rotary_dim": width, "scaling": "none"}
    report = diagnose(turn, kind="rope", head_dim=head_dim, expected=settings)
    assert report.severity is None, report
    assert {name: report.identity[name] for name in settings} == settings


@pytest.mark.parametrize(
    ("told", "check"),
    [
        ({"base": 5e5}, "D-BASE"),
        ({"scaling": "yarn 4"}, "D-BASE"),
        ({"spacing": "tensor2tensor"}, "D-BASE"),
        ({"layout": "interleaved"}, "D-LAYOUT"),
        ({"rotary_dim": 32}, "D-DIM"),
        ({"gain": 1.2}, "D-NORM"),
    ],
    ids=str,
)
def test_what_is_expected_and_is_not_there_is_wrong(told, check):
    report = diagnose(pe_lab.RoPE(64), kind="rope", expected=told)
    assert report.findings[0].severity == "wrong"
    assert report.findings[0].check == check


def test_an_examination_takes_less_than_two_seconds():
    """In CPU time of this process, for the sizes that models have."""
    start = time.process_time()
    diagnose(pe_lab.RoPE(128), kind="rope")
    assert time.process_time() - start < 2


# ------------------------------------------------------------------ real peers


def test_rotary_embedding_torch_counts_in_the_dtype_of_the_queries():
    """rotate_queries_or_keys makes positions in bfloat16, and caches those angles."""
    peer = pytest.importorskip("rotary_embedding_torch")
    rotary = peer.RotaryEmbedding(64)

    def turn(x, p):
        return rotary.rotate_queries_or_keys(x, offset=int(p[0]))

    report = diagnose(turn, kind="rope", contiguous=True)
    found = {f.check for f in report.findings if f.severity in ALARMS}
    assert report.severity == "wrong"
    assert found <= {"D-DTYPE", "D-HISTORY", "D-CACHE"}, report


def test_rotary_embedding_torch_built_under_a_bfloat16_default():
    """The cache is then bfloat16: the first call is right, the second is wrong."""
    peer = pytest.importorskip("rotary_embedding_torch")
    torch.set_default_dtype(torch.bfloat16)
    try:
        rotary = peer.RotaryEmbedding(64)
    finally:
        torch.set_default_dtype(torch.float32)

    def turn(x, p):
        return rotary.rotate_queries_or_keys(x, offset=int(p[0]))

    report = diagnose(turn, kind="rope", contiguous=True)
    assert report.severity == "wrong"


def test_transformers_dynamic_base_remembers_and_depends_on_the_length():
    pytest.importorskip("transformers")
    llama = import_module("transformers.models.llama.modeling_llama")
    config = import_module("transformers").LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=16,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
    )
    table = llama.LlamaRotaryEmbedding(config)

    def turn(q, k, p):
        return llama.apply_rotary_pos_emb(q, k, *table(q, p))

    report = diagnose(turn, kind="rope")
    assert report.findings[0].severity in ALARMS
    assert report.findings[0].check in ("D-BASE", "D-CACHE", "D-HISTORY"), report


def test_torchtunes_formula_is_healthy():
    """Pairs as the last axis, a table indexed by ids, float32 inside: written anew."""
    w = pe_lab.inv_freq(64).float()
    angles = torch.arange(4096).float()[:, None] * w
    table = torch.stack((angles.cos(), angles.sin()), dim=-1)

    def turn(x, p):
        pairs = x.float().unflatten(-1, (-1, 2))
        (cos, sin), (a, b) = table[p].unbind(-1), pairs.unbind(-1)
        both = (a * cos - b * sin, b * cos + a * sin)
        return torch.stack(both, -1).flatten(-2).type_as(x)

    report = diagnose(turn, kind="rope")
    assert report.severity not in ALARMS, report
    assert report.identity["layout"] == "interleaved"


# ------------------------------------------------------- hostile and other kinds


def recognised(subject, **options):
    return KIND.recognise(subject, options, Guard(5))


def test_what_does_not_turn_is_of_another_kind():
    """The reason is a sentence, for the error that lists all attempts."""
    for other in (
        pe_lab.ALiBi(4),
        pe_lab.NoPE(),
        pe_lab.alibi_slopes,
        torch.nn.Linear(64, 64),
        torch.nn.Identity(),
        lambda x, p: x,
        lambda x, p: x + 1,
        lambda x, p: x.softmax(2) @ x.mT,
        lambda length, width: torch.zeros(length, width),
        torch.zeros(3),
        None,
    ):
        assert isinstance(recognised(other), str), other


def test_all_three_conventions_are_recognised():
    turn = pe_lab.RoPE(32)
    assert recognised(turn).form == "rotate"
    assert recognised(lambda x, p: turn.rotate(x, x, p, p)[0]).form == "x"
    assert recognised(lambda q, k, p: turn.rotate(q, k, p, p)).form == "qk"
    assert recognised(turn).head_dim == 32
    assert recognised(pe_lab.AxialRoPE(16)).ids == "2 axes"


@pytest.mark.parametrize(
    "late",
    [
        lambda x: 1 / 0,
        lambda x: x * torch.nan,
        lambda x: x[..., :-2],
        lambda x: None,
        lambda x: x.long(),
        lambda x: (x, x),
        lambda x: x.to(torch.complex64),
    ],
    ids=["raises", "NaN", "narrow", "None", "integers", "pair", "complex"],
)
@pytest.mark.parametrize("after", [1, 2, 3, 8, 20, 50])
def test_a_subject_that_turns_hostile_makes_a_report(late, after):
    """Right at first, something else from a later call on: findings, no exception."""
    turn, calls = pe_lab.RoPE(64), []

    def hostile(x, p):
        calls.append(1)
        out = turn.rotate(x, x, p, p)[0]
        return late(out) if len(calls) > after else out

    try:
        report = diagnose(hostile, kind="rope")
    except ValueError as error:
        assert after == 1 or "kind" in str(error)
    else:
        assert str(report)


def test_the_subject_is_left_as_it_was():
    """Nothing that it keeps is changed by the examination, if it can be copied."""

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.turn = 0, pe_lab.RoPE(64)

        def forward(self, x, p):
            self.calls += 1
            return self.turn.rotate(x, x, p, p)[0]

    subject = Counts()
    before = torch.get_rng_state()
    diagnose(subject, kind="rope")
    assert subject.calls == 0
    assert torch.equal(before, torch.get_rng_state())


def test_a_rotation_by_complex_factors_is_refused_with_the_way_out():
    """Meta's call (q, k, freqs_cis): positions in its third place only scale."""

    def rotate(q, k, freqs_cis):
        pairs = (
            torch.view_as_complex(t.float().unflatten(-1, (-1, 2))) for t in (q, k)
        )
        turned = (p * freqs_cis[None, :, None] for p in pairs)  # (B, L, H, D)
        return tuple(torch.view_as_real(t).flatten(-2).to(q) for t in turned)

    with pytest.raises(ValueError, match="takes factors or angles"):
        diagnose(rotate, kind="rope")
    inv_freq = pe_lab.inv_freq(64)

    def adapted(q, k, positions):
        angles = positions[:, None] * inv_freq
        factors = torch.polar(torch.ones_like(angles), angles).to(torch.cfloat)
        q, k = rotate(q.transpose(1, 2), k.transpose(1, 2), factors)
        return q.transpose(1, 2), k.transpose(1, 2)

    report = diagnose(adapted, kind="rope")
    assert report.identity["layout"] == "interleaved"
    assert report.severity in (None, "differs", "note"), report
