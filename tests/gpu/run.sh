#!/usr/bin/env bash
# Install scda with its GPU packages into .venv-gpu, and run the tests that need a GPU. It needs an
# NVIDIA driver for CUDA 13 and Python 3.11 or newer, and 8 GB of disk. Without a GPU that torch and
# ONNX Runtime both use, it says so and fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! nvidia-smi --list-gpus 2>/dev/null | grep -q ^GPU; then
    echo "test-gpu: nvidia-smi finds no GPU; expected an NVIDIA GPU with a driver for CUDA 13" >&2
    exit 1
fi
bin=.venv-gpu/bin
if [ ! -e .venv-gpu/.installed ]; then
    "${PYTHON:-python3}" -m venv --clear .venv-gpu
    "$bin/pip" install --quiet --upgrade pip
    # httpx, hypothesis and psutil are what the tests use; nothing here brings the package
    # onnxruntime, which would overwrite files of onnxruntime-gpu.
    "$bin/pip" install --quiet --no-compile --editable '.[train,gpu]' httpx hypothesis psutil pytest
    touch .venv-gpu/.installed
fi
"$bin/scda-adapt" doctor  # fails if a library runs on the CPU although there is a GPU
exec "$bin/pytest" -m gpu --durations=5 tests/gpu
