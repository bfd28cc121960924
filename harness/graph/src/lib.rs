//! The training step as one static graph: operators, differentiation, verifier, passes
