"""Weights of a network, from a file or from the address where they are published."""

from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from scda.models.errors import UsageError

State = dict[str, Tensor]
Notify = Callable[[str], None]
_UNREADABLE = (OSError, ValueError, RuntimeError, EOFError, UnpicklingError)


def read_weights(path: Path) -> State:
    """Read the tensors of a safetensors file or a plain state dict without running code.

    Raises:
        UsageError: If the file is missing or of another format.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (*_UNREADABLE, SafetensorError):
        # The message of torch would advise to switch safe loading off.
        raise UsageError(f"{path}: neither safetensors nor a plain state dict") from None
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise UsageError(f"{path}: expected a plain state dict (name → tensor)")
    return state


def load_weights(network: nn.Module, state: State, name: str) -> None:
    """Load the weights into a network; tensors that it lacks, such as a classifier, are ignored.

    Raises:
        UsageError: If a tensor is missing or of another shape.
    """
    own = network.state_dict()
    wrong = [key for key in own if key not in state or state[key].shape != own[key].shape]
    if wrong:
        raise UsageError(f"weights do not fit {name}: {wrong[0]} is missing or of another shape")
    network.load_state_dict({key: state[key] for key in own})


def fetch_weights(url: str, name: str, notify: Notify) -> State:
    """Download a state dict; torch caches it. A damaged file in the cache is downloaded again.

    Args:
        url: Address of a file whose name holds its checksum.
        name: Name of the backbone.
        notify: Called with a line about the download.

    Raises:
        UsageError: If the download fails.
    """
    notify(f"backbone {name}: weights from {url}, kept in {torch.hub.get_dir()}")
    cached = Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2])
    was_cached = cached.is_file()
    try:
        state: State = torch.hub.load_state_dict_from_url(
            url, map_location="cpu", progress=False, check_hash=True, weights_only=True
        )
    except _UNREADABLE as error:  # no network, another checksum, a damaged file
        if not was_cached:
            raise unfetched(name, url, error) from None
    else:
        return state
    try:
        cached.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{cached}: damaged, and cannot be deleted: {error.strerror}") from None
    return fetch_weights(url, name, notify)


def unfetched(name: str, url: str, error: Exception) -> UsageError:
    """Return the error that names the file to download by hand."""
    return UsageError(
        f"backbone {name}: cannot download its weights ({error}); "
        f"download {url} and pass --weights FILE"
    )
