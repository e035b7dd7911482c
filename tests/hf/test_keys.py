"""A config in every form, and the language model inside it."""

import json
import subprocess
import sys
from types import SimpleNamespace

import torch

import pe_lab
from pe_lab import hf
from tests.hf.transformers_code import LLAMA, says, transformers


def test_multimodal_configs_are_read_inside():
    keys = {
        "model_type": "llava",
        "rope_theta": 5.0,
        "text_config": LLAMA | {"rope_theta": 1e6},
    }
    reading = hf.from_config(keys)
    assert (reading.model_type, reading.encoding.base) == ("llama", 1e6)
    says(reading, "Read from text_config", "rope_theta beside text_config is ignored")


def test_every_way_to_pass_a_config(tmp_path):
    """Dict, file, folder, transformers' object and plain attributes mean the same."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    theirs = transformers.LlamaConfig(**LLAMA)
    for config in (path, str(path), tmp_path, SimpleNamespace(**LLAMA), theirs):
        encoding = hf.from_config(config).encoding
        assert torch.equal(encoding.inv_freq, pe_lab.inv_freq(64)), config
        assert encoding.head_dim == 64


def test_a_config_is_not_changed():
    keys = LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    before = json.dumps(keys)
    hf.from_config(keys)
    assert json.dumps(keys) == before


def test_transformers_is_not_imported():
    """In a fresh process: neither by the import nor by reading a config."""
    code = (
        "import sys, pe_lab\n"
        "from pe_lab import hf\n"
        "hf.from_config({'model_type': 'llama', 'head_dim': 8, 'rope_theta': 1e4})\n"
        "print('transformers' in sys.modules, 'huggingface_hub' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
