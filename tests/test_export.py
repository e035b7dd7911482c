"""Compiled, exported or in ONNX, every scheme gives what it gives when called plainly.

Traced at 16 tokens, run at 33: a table or a count that was fixed while tracing shows.
Generated code sums in another order: 1e-5 of values up to 4.
"""

import logging
import warnings

import pytest
import torch
from torch import nn

import pe_lab
from tests.oracle import exact_sinusoidal

HEADS, DIM = 2, 8
SCHEMES = {
    "rope": lambda: pe_lab.RoPE(DIM),
    "interleaved": lambda: pe_lab.RoPE(DIM, layout="interleaved"),
    "partial": lambda: pe_lab.RoPE(DIM, rotary_dim=4, scaling=lambda w: pe_lab.scaling.yarn(w, 4, original_length=64), gain=1.1),
    "xpos": lambda: pe_lab.XPos(DIM),
    "axial": lambda: pe_lab.AxialRoPE(DIM),
    "mrope": lambda: pe_lab.MRoPE(DIM, (2, 2)),
    "alibi": lambda: pe_lab.ALiBi(HEADS),
    "t5": lambda: pe_lab.T5Bias(HEADS, bidirectional=True),
    "shaw": lambda: pe_lab.Shaw(DIM, 4),
    "transformer-xl": lambda: pe_lab.TransformerXL(HEADS, DIM),
    "tupe": lambda: pe_lab.TUPE(64, HEADS * DIM, HEADS),
    "kerple": lambda: pe_lab.Kerple(HEADS),
    "fire": lambda: pe_lab.Fire(HEADS),
    "sinusoidal": lambda: pe_lab.Sinusoidal(DIM),
    "learned": lambda: pe_lab.Learned(64, DIM, std=1.0),
    "none": lambda: pe_lab.NoPE(),
}  # fmt: skip


class Everything(nn.Module):
    """The outputs of many schemes, so that one trace serves them all."""

    def __init__(self, names=SCHEMES):
        super().__init__()
        pe_lab.seed(0)
        self.schemes = nn.ModuleDict({name: SCHEMES[name]() for name in names})

    def forward(self, x, ids):
        cells = torch.stack((ids, 2 * ids), dim=-1)
        outputs = []
        for name, scheme in self.schemes.items():
            places = cells if name in ("axial", "mrope") else ids
            if name in ("sinusoidal", "learned"):
                outputs.append(scheme.embed(x[:, 0], places))
            else:
                outputs.append(
                    pe_lab.attention(x, x, x, causal=True, encoding=scheme, q_pos=places, k_pos=places)
                )  # fmt: skip
        return tuple(outputs)


def inputs(batch, length):
    """Rows that start at different places; no two sizes are alike."""
    generator = torch.Generator().manual_seed(batch)
    x = torch.randn(batch, HEADS, length, DIM, generator=generator)
    return x, torch.arange(length) + torch.arange(batch)[:, None]


def open_sizes(least=1):
    batch = torch.export.Dim("batch", min=least, max=64)
    length = torch.export.Dim("length", min=2, max=64)
    return ({0: batch, 2: length}, {0: batch, 1: length})


def differences(theirs, module, arguments):
    ours = module(*arguments)
    return {
        name: (a - b).abs().max().item()
        for name, a, b in zip(module.schemes, theirs, ours, strict=True)
    }


def test_one_graph_serves_every_batch_and_length():
    """Graph breaks and compiling again for each length: transformers#35716,
    vllm#33800, foundation-model-stack#64. fullgraph refuses a break.
    """
    graphs = []

    def counting(graph, _):
        graphs.append(graph)
        return graph.forward

    module = Everything()
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counting)
    for batch, length in ((3, 16), (5, 33)):
        arguments = inputs(batch, length)
        worst = differences(compiled(*arguments), module, arguments)
        assert max(worst.values()) <= 1e-5, worst
    assert len(graphs) == 1


@pytest.mark.parametrize(
    "names", [("rope", "interleaved"), ("alibi", "t5", "sinusoidal")]
)
def test_compiled_to_machine_code(names):
    """One scheme of each door and layout."""
    module = Everything(names)
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    for batch, length in ((3, 16), (5, 33)):
        arguments = inputs(batch, length)
        worst = differences(compiled(*arguments), module, arguments)
        assert max(worst.values()) <= 1e-5, worst


def test_compiled_tables_are_exact_at_ten_million():
    """Vectorised sines of generated code must be those of float64."""
    far = [0, 999, 10**6 - 1, 10**7]
    compiled = torch.compile(pe_lab.rope_table, fullgraph=True)
    cos, sin = compiled(torch.tensor(far), pe_lab.inv_freq(64))
    exact = exact_sinusoidal(far, 64)
    assert (sin - exact[:, 0::2]).abs().max() <= 3.3e-8
    assert (cos - exact[:, 1::2]).abs().max() <= 3.3e-8


@pytest.mark.parametrize("strict", [False, True])
def test_exported_with_open_batch_and_length(strict):
    """The trace's length baked in: sparseml#1826, x-transformers#212."""
    module = Everything(SCHEMES if not strict else ("rope", "alibi", "learned"))
    program = torch.export.export(
        module, inputs(3, 16), dynamic_shapes=open_sizes(), strict=strict
    ).module()
    for batch, length in ((5, 33), (1, 2)):
        arguments = inputs(batch, length)
        worst = differences(program(*arguments), module, arguments)
        assert max(worst.values()) <= 1e-5, worst


def test_a_whole_model_is_exported_with_ids_that_it_counts_itself():
    pe_lab.seed(0)
    model = pe_lab.Transformer(11, 16, 2, 2, encoding=pe_lab.RoPE(8)).eval()
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(
        model, (torch.zeros(2, 16).long(),), dynamic_shapes=({1: length},)
    ).module()
    tokens = torch.arange(66).view(2, 33) % 11
    assert torch.allclose(program(tokens), model(tokens), atol=1e-6)


def test_a_decoding_step_is_exported_with_an_open_cache():
    """One query over as many keys as there are."""

    scheme = pe_lab.ALiBi(2)

    class Step(nn.Module):
        def forward(self, q, k):
            return pe_lab.attention(q, k, k, causal=True, encoding=scheme)

    length = torch.export.Dim("length", min=2, max=64)
    q, k = torch.randn(3, 2, 1, 8), torch.randn(3, 2, 16, 8)
    program = torch.export.export(Step(), (q, k), dynamic_shapes=({}, {2: length}))
    k = torch.randn(3, 2, 33, 8)
    assert torch.allclose(program.module()(q, k), Step()(q, k), atol=1e-6)


def test_onnx_with_open_batch_and_length():
    """ONNX with a dynamic length fails or bakes in the length: x-transformers#212.

    Another library's kernels sum in another order.
    """
    session = onnx_session(Everything(), inputs(3, 16), open_sizes())
    for batch, length in ((5, 33), (1, 2)):
        x, ids = inputs(batch, length)
        outputs = session.run(None, {"x": x.numpy(), "ids": ids.numpy()})
        theirs = [torch.from_numpy(output) for output in outputs]
        worst = differences(theirs, Everything(), (x, ids))
        assert max(worst.values()) <= 1e-5, worst


def onnx_session(module, arguments, dynamic_shapes):
    """The module in onnxruntime; what the exporter says about torchvision is noise."""
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module, arguments, dynamo=True, dynamic_shapes=dynamic_shapes, verbose=False
        )
    return runtime.InferenceSession(
        program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def test_onnx_tables_are_exact_far_away():
    """ONNX keeps the float64 angles: float32 ones are off by 0.06 rad at a million."""
    scheme = pe_lab.Sinusoidal(DIM)

    class Tables(nn.Module):
        def forward(self, x, ids):
            return scheme.embed(x, ids), pe_lab.sinusoidal(ids, DIM)

    far = torch.tensor([[1, 999, 10**6 - 1, 10**7]])
    x = torch.zeros(1, 4, DIM)
    session = onnx_session(Tables(), (x, far), None)
    exact = exact_sinusoidal(far[0].tolist(), DIM)
    for table in session.run(None, {"x": x.numpy(), "ids": far.numpy()}):
        assert (torch.from_numpy(table)[0] - exact).abs().max() <= 3.3e-8
