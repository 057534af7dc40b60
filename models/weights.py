"""Weights of a network: from a file, or from where they are published; never random ones."""

from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from scda.models.errors import UsageError

State = dict[str, Tensor]
Say = Callable[[str], None]


def read_weights(path: Path) -> State:
    """Return the tensors of a safetensors file or a plain state dict; no code in it is run.

    Raises:
        UsageError: If the file is missing or is neither.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, UnpicklingError, SafetensorError):
        # torch's own text would advise to switch the safe loading off.
        raise UsageError(f"{path}: neither safetensors nor a plain state dict") from None
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise UsageError(f"{path}: want a plain state dict (name → tensor)")
    return state


def load_weights(network: nn.Module, state: State, name: str) -> None:
    """Load what the network has; a classifier that came along is left aside.

    Raises:
        UsageError: If a tensor is missing or of another shape.
    """
    wanted = network.state_dict()
    wrong = [key for key in wanted if key not in state or state[key].shape != wanted[key].shape]
    if wrong:
        raise UsageError(f"weights do not fit {name}: {wrong[0]} is missing or of another shape")
    network.load_state_dict({key: state[key] for key in wanted})


def fetch_weights(url: str, name: str, say: Say) -> State:
    """Return the state dict at an address, which torch keeps for the next time.

    Args:
        url: Of a file whose name holds its checksum.
        name: The backbone.
        say: Is told what is fetched, and from where.

    Raises:
        UsageError: If it cannot be had.
    """
    say(f"backbone {name}: weights from {url}, kept in {torch.hub.get_dir()}")
    try:
        state: State = torch.hub.load_state_dict_from_url(
            url, map_location="cpu", progress=False, check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError) as error:  # no network; or what came has another checksum
        raise unfetched(name, url, error) from None
    return state


def unfetched(name: str, url: str, error: Exception) -> UsageError:
    """Return the error that says which file to get by hand."""
    return UsageError(
        f"backbone {name}: cannot fetch its weights ({error}); get {url} and pass --weights FILE"
    )
