//! Fast CPU kernels on plain slices: NC1HWC0 convolutions, normalisation, pools, updates
