//! Executes a step graph on candle tensors: reference kernels, fast kernels, memory plan
