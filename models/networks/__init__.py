"""The PyTorch half of models: backbones, F and C, their weights, and the export to ONNX."""
