"""What trained heads need of the CUDA kernels besides what a model does."""
