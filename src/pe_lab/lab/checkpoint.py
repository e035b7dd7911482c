"""Checkpoints: all that changes while a model is trained, in one file.

The file is safetensors: weights, the optimizer's averages and the generators' states as
tensors, the rest as JSON in its header (`safe_open(path, "pt").metadata()` shows it).
One file is renamed into place in one step, so no tensors ever meet the JSON of another
step, and its SHA-256 covers both, so a damaged one is seen.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import parallel
from .files import refuse_other, write_whole
from .results import Curve

FORMAT = 1
SUFFIX = ".safetensors"
Content = tuple[dict[str, Tensor], dict[str, Any]]  # of a file: tensors and notes


def _no_curves() -> dict[str, Curve]:
    return {"train_loss": Curve([], []), "held_out_loss": Curve([], [])}


@dataclass
class State:
    """All that changes while a model is trained, but torch's own generators.

    Attributes:
        model: its weights.
        optimizer: its averages of the gradients.
        generator: of the batches.
        step: updates made.
        curves: what was measured so far.
        seen: losses since the last point of the training curve.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    step: int = 0
    curves: dict[str, Curve] = field(default_factory=_no_curves)
    seen: list[float] = field(default_factory=list)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of the tensors, and of the states of torch's generators (dropout)."""
        found = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        for i, averages in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer.{i}.{name}": t for name, t in averages.items()}
        found |= {"batches": self.generator.get_state(), "cpu": torch.get_rng_state()}
        if (device := device_of(self.model)).type == "cuda":
            found["cuda"] = torch.cuda.get_rng_state(device)
        return {name: t.detach().cpu().clone() for name, t in found.items()}

    def notes(self) -> dict[str, Any]:
        """What is no tensor, ready for JSON, which keeps every bit of a float."""
        curves = {name: asdict(curve) for name, curve in self.curves.items()}
        return {"step": self.step, "curves": curves, "seen": self.seen}

    def restore(self, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Become the state that was stored."""
        averages: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below("optimizer.", tensors).items():
            i, _, which = name.partition(".")
            averages.setdefault(int(i), {})[which] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.model.load_state_dict(_below("model.", tensors))
        self.optimizer.load_state_dict({"state": averages, "param_groups": groups})
        self.generator.set_state(tensors["batches"])
        torch.set_rng_state(tensors["cpu"])
        if "cuda" in tensors:
            torch.cuda.set_rng_state(tensors["cuda"], device_of(self.model))
        self.step, self.seen = notes["step"], notes["seen"]
        self.curves = {name: Curve(**curve) for name, curve in notes["curves"].items()}


def device_of(model: nn.Module) -> torch.device:
    """Where the model's parameters are."""
    return next(model.parameters()).device


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin so, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


@dataclass(frozen=True)
class Checkpoint:
    """Where the state of one training is kept, and of which training it is.

    Attributes:
        path: of the file; None to keep nothing.
        of: all that decides the outcome, ready for JSON.
    """

    path: Path | None
    of: dict[str, Any]

    def load(self, state: State) -> dict[str, Any] | None:
        """Go on from the file, if there is one.

        Returns: its notes, or None.
        Raises: ValueError if the file is damaged or of another training.
        """
        found = parallel.first_says(self._read)
        if found is None:
            return None
        state.restore(*found)
        return found[1]

    def _read(self) -> Content | None:
        if self.path is None:
            return None
        try:
            tensors, notes = read(self.path)
        except FileNotFoundError:
            return None
        refuse_other(self.path, notes["of"], self.of)
        return tensors, notes

    def save(self, state: State, **more: Any) -> None:
        """Replace the file by one of this state, in one step.

        Raises: OSError if it cannot be written; the file is then what it was.
        """
        if self.path is None or parallel.rank() != 0:
            return
        notes = {"format": FORMAT, "of": self.of} | state.notes() | more
        write(self.path, state.tensors(), notes)


def write(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Write a file whole or not at all."""
    from safetensors.torch import save

    text = json.dumps(notes, ensure_ascii=False, allow_nan=False)
    header = {"notes": text, "sha256": digest(tensors, text)}
    write_whole(path, save(tensors, header))


def read(path: Path) -> Content:
    """Read a file that `write` wrote.

    Raises: FileNotFoundError if there is none, ValueError if it is cut short, damaged,
    or of another format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            names = file.keys()
            tensors = {name: file.get_tensor(name).clone() for name in names}
        text = header["notes"]
        if header["sha256"] != digest(tensors, text):
            raise ValueError("its SHA-256 is another")
        notes = json.loads(text)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ValueError(
            f"{path} is no whole checkpoint (it breaks off or is damaged); delete it, "
            "and this training starts again from its first step."
        ) from error
    if notes["format"] != FORMAT:
        raise ValueError(
            f"{path} has format {notes['format']}, this version reads {FORMAT}; use "
            "the version of pe_lab that wrote it, or delete it to start again."
        )
    return tensors, notes


def remove(folder: Path) -> None:
    """Delete the checkpoints in a folder, whole and half written, and then the folder.

    Another process may do the same at the same time; what is not ours stays.
    """
    with suppress(OSError):
        for file in folder.glob(f"*{SUFFIX}*"):
            file.unlink(missing_ok=True)
        folder.rmdir()


def digest(tensors: dict[str, Tensor], text: str = "") -> str:
    """SHA-256 of tensors, their names, types and shapes, and a text."""
    found = sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        found.update(plain.numpy().data)
    return found.hexdigest()
