"""Deterministic tensors: every weight, input and sample position is a function of a name and a flat index.

Hash of (name, i): splitmix64's finaliser over FNV-1a (64 bit) of the name plus (i + 1) times the golden-ratio increment,
all in wrapping 64-bit arithmetic. Sources: Fowler, Noll, Vo (FNV-1a); Steele, Lea, Flood, OOPSLA 2014 (splitmix64).
"""

import math

import numpy as np

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_CHUNK = 1 << 22


def fnv1a64(name: str) -> int:
    """FNV-1a, 64 bit, of the UTF-8 bytes of `name`."""
    state = 0xCBF29CE484222325
    for byte in name.encode("utf-8"):
        state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state


def hashes(name: str, count: int, start: int = 0) -> np.ndarray:
    """h(name, i) for i in start..start+count, as u64."""
    with np.errstate(over="ignore"):
        z = np.arange(start + 1, start + count + 1, dtype=np.uint64) * _INCREMENT + np.uint64(fnv1a64(name))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def signed(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """s(name, i) = 2 * (h >> 40) * 2^-24 - 1 in [-1, 1), exact in f32, row-major."""
    numel = math.prod(shape)
    out = np.empty(numel, dtype=np.float32)
    for start in range(0, numel, _CHUNK):
        count = min(_CHUNK, numel - start)
        fraction = (hashes(name, count, start) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        out[start : start + count] = np.float32(2.0) * fraction - np.float32(1.0)
    return out.reshape(shape)


def sample_positions(key: str, numel: int, count: int) -> np.ndarray:
    """Flat positions of the samples stored for `key`. The rule is never salted; positions can repeat."""
    return (hashes("sample:" + key, count) % np.uint64(numel)).astype(np.int64)


def test_vectors() -> dict:
    """What the JSON carries so that another implementation can check its own hash."""
    names = ("a", "conv1.weight", "holdout:conv1.weight", "input.image")
    return {
        name: {
            "fnv1a64": f"{fnv1a64(name):016x}",
            "h": [f"{value:016x}" for value in hashes(name, 4).tolist()],
            "s_f32": signed(name, (4,)).tolist(),
        }
        for name in names
    }
