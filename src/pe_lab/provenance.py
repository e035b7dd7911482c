"""Where a number came from: versions, commit, machine, threads, date, seed.

`pe_lab.provenance()` ends every chapter and heads every results file.
"""

from __future__ import annotations

import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import pe_lab


@dataclass(frozen=True)
class Provenance:
    """What a result depends on besides the code that it stands under.

    Attributes:
        date: UTC, ISO 8601, to the second.
        pe_lab: version of this package.
        commit: of the checkout it was imported from, "+" where files differ from it;
            None outside a checkout.
        python: its version.
        torch: its version, with the build after a plus.
        numpy: its version.
        platform: operating system and processor family.
        device: name of the GPU if there is one, else "cpu".
        cpu: the instruction set that torch's kernels use, such as "AVX2".
        threads: torch's threads within an operation.
        seed: the seed of the run, if given.
    """

    date: str
    pe_lab: str
    commit: str | None
    python: str
    torch: str
    numpy: str
    platform: str
    device: str
    cpu: str
    threads: int
    seed: int | None = None

    def to_dict(self) -> dict[str, str | int | None]:
        """The fields as plain values, ready for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        """What the outputs of a chapter depend on: no date and no commit.

        So a chapter that is run again gives the same file again.
        """
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        seed = "" if self.seed is None else f", seed {self.seed}"
        return (
            f"pe_lab {self.pe_lab} · Python {self.python} · "
            f"torch {self.torch} · NumPy {self.numpy}\n"
            f"{self.platform} · {self.device} · {self.cpu}, {threads}{seed}"
        )


def provenance(*, seed: int | None = None) -> Provenance:
    """Record what the numbers made here depend on.

    Args:
        seed: the seed of the run, to be kept with its results.

    Returns:
        a Provenance; printed, it is two lines, and `.to_dict()` goes into JSON.

    Raises:
        ValueError: if the seed is not an integer.

    Example:
        >>> made = pe_lab.provenance(seed=0)
        >>> made.seed, made.torch == torch.__version__
        (0, True)
    """
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise ValueError(f"seed is {seed!r}; an int is needed, or None.")
    return Provenance(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        pe_lab=pe_lab.__version__,
        commit=_commit(Path(__file__).resolve().parent),
        python=platform.python_version(),
        torch=str(torch.__version__),
        numpy=np.__version__,
        platform=f"{platform.system()} {platform.machine()}",
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        cpu=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
        seed=seed,
    )


def _commit(folder: Path) -> str | None:
    """The commit of the checkout that tracks this file, or None."""
    # An installed copy may lie below somebody else's checkout: ask for our own file.
    if _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    commit = _git(folder, "rev-parse", "--short=10", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return commit if commit is None or not changed else f"{commit}+"


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, or None where there is no git or it fails."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
