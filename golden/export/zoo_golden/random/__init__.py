"""Random networks against PyTorch."""
