"""What trained heads need of the CUDA kernels beyond what a model needs."""
