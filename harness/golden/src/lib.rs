//! Golden steps: manifest, record, import, compare, first divergence, mutation self-test
