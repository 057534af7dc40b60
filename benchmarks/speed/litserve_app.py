"""A bundle behind LitServe: the same file reading, preprocessing, model and answer as scda.

python -m benchmarks.speed.litserve_app BUNDLE PORT WORKERS THREADS
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import litserve
from fastapi import File

from scda.models.bundle import bundle_folder
from scda.models.images import read_pixels
from scda.models.predictor import Prediction, load_predictor
from scda.models.preprocess import Pixels

_BATCH, _WAIT_SECONDS = 16, 0.005


class Api(litserve.LitAPI):  # type: ignore[misc]  # litserve ships no types
    """The interface of LitServe: from the bytes of a file to an answer."""

    def __init__(self, bundle: Path, threads: int, **options: Any) -> None:
        """Create the interface; the worker loads the bundle in `setup`."""
        super().__init__(**options)
        self._bundle, self._threads = bundle, threads

    def setup(self, device: str) -> None:
        """Load the bundle with the threads of one worker."""
        folder = bundle_folder(self._bundle)
        self.predictor = load_predictor(
            folder, provider="cpu", threads=self._threads, spinning=False
        )

    def decode_request(self, request: Annotated[bytes, File()]) -> Pixels:
        """Read and prepare one image."""
        return read_pixels(request, self.predictor.manifest.preprocessing)

    def batch(self, inputs: list[Pixels]) -> list[Pixels]:
        """Return the images unchanged; the predictor stacks them."""
        return inputs

    def predict(self, x: list[Pixels]) -> list[Prediction]:
        """Run the model."""
        return self.predictor.predict(x)

    def unbatch(self, output: list[Prediction]) -> list[Prediction]:
        """Return the answers unchanged."""
        return output

    def encode_response(self, output: Prediction) -> dict[str, Any]:
        """Return the answer as JSON values."""
        return output.to_json()


def main() -> None:
    """Serve until a signal arrives."""
    bundle, (port, workers, threads) = Path(sys.argv[1]), map(int, sys.argv[2:])
    api = Api(bundle, threads, max_batch_size=_BATCH, batch_timeout=_WAIT_SECONDS)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=workers)
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()
