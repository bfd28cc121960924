//! The loop around the step: checkpoints, metrics, evaluation, events
