"""The Open Inference Protocol (V2), which KServe, Triton and MLServer share, for one model."""
