"""Writes the images of this folder, and expected.txt with hashes of the pixels that Pillow decodes.

Needs Pillow, numpy and libjpeg-turbo's `cjpeg`. Lines of expected.txt: file, width, height, and the 64-bit
Fowler-Noll-Vo hash (1a) of the bytes of `Image.open(file).convert("RGB")`.
"""

import io
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

FOLDER = Path(__file__).parent
SAMPLINGS = ["1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "4x2", "2x4", "1x1,2x1,1x1", "2x2,2x1,1x2", "1x1,2x2,1x1"]
KINDS = ["noise", "smooth", "blocks"]
RANDOM = np.random.default_rng(7)


def picture(width, height, kind):
    y, x = np.mgrid[0:height, 0:width].astype(float)
    if kind == "noise":
        pixels = RANDOM.integers(0, 256, (height, width, 3))
    elif kind == "smooth":
        waves = [127 + 120 * np.sin(x / 7 + y / 11), 127 + 120 * np.cos(x / 5 - y / 9), (x * 3 + y * 5) % 256]
        pixels = np.stack(waves, -1)
    else:
        pixels = np.zeros((height, width, 3))
        pixels[(x.astype(int) // 3 + y.astype(int) // 4) % 2 == 0] = [255, 0, 64]
        pixels[:, width // 2 :] += [0, 200, 100]
    return np.clip(pixels, 0, 255).astype(np.uint8)


def cjpeg(name, pixels, *options):
    ppm = io.BytesIO()
    Image.fromarray(pixels).save(ppm, "PPM")
    result = subprocess.run(["cjpeg", *options], input=ppm.getvalue(), capture_output=True, check=True)
    (FOLDER / f"{name}.jpg").write_bytes(result.stdout)


def jpegs():
    for number, sampling in enumerate(SAMPLINGS):
        for width, height in [(5, 3), (43, 37)]:
            progressive = (number + width // 43) % 2 == 1
            options = ["-sample", sampling, "-quality", str([95, 60, 85, 30][number % 4])]
            options += ["-progressive"] if progressive else ["-optimize"]
            options += ["-restart", "2B"] if number % 3 == 0 else []
            name = f"{'progressive' if progressive else 'baseline'}_{sampling.replace(',', '_')}_{width}x{height}"
            cjpeg(name, picture(width, height, KINDS[number % 3]), *options)
    for width, height in [(1, 1), (2, 2), (3, 9)]:
        cjpeg(f"small_{width}x{height}", picture(width, height, "noise"), "-sample", "2x2")
    cjpeg("quality_1", picture(40, 24, "noise"), "-quality", "1")
    cjpeg("quality_100", picture(40, 24, "noise"), "-quality", "100", "-sample", "1x1")
    cjpeg("rgb", picture(21, 13, "smooth"), "-rgb")
    cjpeg("rgb_progressive", picture(21, 13, "smooth"), "-rgb", "-progressive")
    cjpeg("grey", picture(21, 13, "smooth"), "-grayscale")
    cjpeg("grey_2x2", picture(21, 13, "smooth"), "-grayscale", "-sample", "2x2", "-progressive")
    scans = FOLDER / "scans.txt"
    scans.write_text("0 2;\n1;\n")
    cjpeg("scans_apart", picture(43, 37, "smooth"), "-sample", "2x2", "-scans", str(scans), "-restart", "1B")
    scans.unlink()
    inks = np.concatenate([picture(21, 13, "smooth"), picture(21, 13, "noise")[:, :, :1]], -1)
    Image.fromarray(inks, "CMYK").save(FOLDER / "cmyk.jpg", quality=85)
    Image.fromarray(inks, "CMYK").save(FOLDER / "cmyk_progressive.jpg", quality=85, progressive=True)
    # Pillow cannot write YCCK: change the Adobe segment of a CMYK file.
    ycck = (FOLDER / "cmyk.jpg").read_bytes()
    at = ycck.index(b"Adobe") + 11
    (FOLDER / "ycck.jpg").write_bytes(ycck[:at] + b"\2" + ycck[at + 1 :])


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(name, width, depth, colour, rows, extra=b""):
    """A PNG file of unfiltered rows."""
    header = struct.pack(">IIBBBBB", width, len(rows), depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    (FOLDER / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def pngs():
    wide = struct.pack(">12H", 0, 1, 127, 128, 255, 256, 257, 1000, 32768, 65535, 0x1280, 0x127F)
    palette = chunk(b"PLTE", bytes(range(10, 130, 10)))
    png("grey_1_bit", 8, 1, 0, [b"\xa5", b"\x0f"])
    png("grey_2_bits", 4, 2, 0, [b"\x1b"])
    png("grey_4_bits", 4, 4, 0, [b"\x08\xf3"])
    png("grey_16_bits", 12, 16, 0, [wide])
    # The transparent level is 256: it changes nothing, but the decoder makes a file with alpha of it.
    png("grey_16_bits_transparent", 12, 16, 0, [wide], chunk(b"tRNS", b"\1\0"))
    png("grey_alpha", 3, 8, 4, [bytes([10, 0, 100, 128, 200, 255])])
    png("grey_alpha_16_bits", 6, 16, 4, [wide])
    png("grey_transparent", 3, 8, 0, [b"\0\1\2"], chunk(b"tRNS", b"\0\1"))
    png("rgb_16_bits", 4, 16, 2, [wide])
    png("rgba", 2, 8, 6, [bytes([1, 2, 3, 0, 250, 128, 7, 90])])
    png("rgba_16_bits", 3, 16, 6, [wide])
    png("palette", 4, 8, 3, [b"\0\1\2\3"], palette)
    png("palette_2_bits", 4, 2, 3, [b"\x1b"], palette)
    png("palette_transparent", 3, 8, 3, [b"\0\1\2"], palette + chunk(b"tRNS", bytes([0, 128, 255])))


def fnv1a64(data):
    z = 0xCBF29CE484222325
    for byte in data:
        z = (z ^ byte) * 0x100000001B3 % 2**64
    return z


if __name__ == "__main__":
    for old in [*FOLDER.glob("*.jpg"), *FOLDER.glob("*.png")]:
        old.unlink()
    jpegs()
    pngs()
    lines = []
    for path in sorted([*FOLDER.glob("*.jpg"), *FOLDER.glob("*.png")]):
        image = Image.open(path).convert("RGB")
        lines.append(f"{path.name} {image.width} {image.height} {fnv1a64(image.tobytes()):016x}\n")
    (FOLDER / "expected.txt").write_text("".join(lines))
