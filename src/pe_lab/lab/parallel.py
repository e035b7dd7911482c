"""One run in several processes: each takes its share of every batch (torchrun)."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .tasks import Batch

T = TypeVar("T")


def launched() -> bool:
    """Whether torchrun started this process."""
    return dist.is_available() and dist.is_torchelastic_launched()


def rank() -> int:
    """The number of this process; 0 shows, writes, and is the only one by default."""
    return int(os.environ["RANK"]) if launched() else 0


def size() -> int:
    """How many processes share each batch."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def join(device: torch.device) -> torch.device:
    """Join the processes that torchrun started, if it did; the device of this one.

    For the rest of the process: a group that is left and joined again may find what is
    left of the first one, and wait for ever.
    """
    if not launched():
        return device
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        on_cpu = device.type == "cpu"
        dist.init_process_group("gloo" if on_cpu else "cpu:gloo,cuda:nccl")
        atexit.register(dist.destroy_process_group)
    return device


def first_says(ask: Callable[[], T]) -> T:
    """What the first process finds, in all of them; if it raises, all raise that."""
    if size() == 1:
        return ask()
    said: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            said[0] = ask()
        except Exception as error:
            said[1] = error
    dist.broadcast_object_list(said, src=0)
    if said[1] is not None:
        raise said[1]
    return said[0]


# All processes draw the same batch, and each divides the sum of its losses by the
# number of slots that are asked in the whole of it. So the sum over processes, of loss
# and gradients, is what one process has. (DistributedDataParallel takes the mean of
# means, which is another number where some slots are not asked.)


def share(batch: Batch) -> Batch:
    """The rows of a batch that are this process's.

    Raises:
        ValueError: if there are fewer rows than processes.
    """
    if size() == 1:
        return batch
    if len(batch.inputs) < size():
        raise ValueError(
            f"a batch of {len(batch.inputs)} sequences cannot be shared among {size()} "
            "processes; start no more of them than that."
        )

    def rows(ids: Tensor) -> Tensor:
        return ids.tensor_split(size())[dist.get_rank()]

    return batch.map(rows)


def total(value: Tensor) -> float:
    """A scalar, summed over processes."""
    if size() > 1:
        value = value.clone()
        dist.all_reduce(value)
    return float(value)


def add_gradients(model: nn.Module) -> None:
    """Replace each gradient by its sum over processes.

    What has none counts as zeros, so that all processes send the same and none waits.
    """
    if size() == 1:
        return
    trained = [p for p in model.parameters() if p.requires_grad]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    sums = flat.split([p.numel() for p in trained])
    for parameter, summed in zip(trained, sums, strict=True):
        if parameter.grad is not None:
            parameter.grad.copy_(summed.view_as(parameter))


def same_weights(model: nn.Module) -> None:
    """Give all processes the first one's weights."""
    if size() > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
