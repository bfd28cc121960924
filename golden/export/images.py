"""python images.py [--seed N] [--count M] [--keep FOLDER]: draws M image files and label maps of all kinds of PNG and
JPEG, and compares the pixels that zoo decodes with Pillow's.

Needs Pillow and numpy, and cargo for the decoder of zoo (datasets/examples/decode.rs). The outcome of each file:

    equal      both give the same pixels
    refused    both refuse the file
    zoo        only zoo refuses it: listed with its message
    pillow     only Pillow refuses it: listed with its message
    guessed    both decode a damaged JPEG file, but to other pixels: its coefficients leave the range that an encoder
               can write, and libjpeg-turbo's vectors of 16 bits wrap
    DIFFERENT  both decode it to other pixels: a fault, exit code 1

The files of the last four outcomes are kept in FOLDER.
"""

import argparse
import collections
import io
import random
import struct
import subprocess
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
NAMES = {GREY: "grey", RGB: "rgb", PALETTE: "palette", GREY_ALPHA: "grey+alpha", RGBA: "rgba"}
DEPTHS = {GREY: [1, 2, 4, 8, 16], RGB: [8, 16], PALETTE: [1, 2, 4, 8], GREY_ALPHA: [8, 16], RGBA: [8, 16]}
# Start and step of the columns and rows of each pass (PNG specification, 8.2).
PASSES = [(0, 8, 0, 8), (4, 8, 0, 8), (0, 4, 4, 8), (2, 4, 0, 4), (0, 2, 2, 4), (1, 2, 0, 2), (0, 1, 1, 2)]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack(row, depth):
    """A row of samples in the bytes of a PNG file."""
    if depth == 16:
        return row.astype(">u2").tobytes()
    if depth == 8:
        return row.astype(np.uint8).tobytes()
    bits = np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 8 - depth :]
    return np.packbits(bits.reshape(-1)).tobytes()


def filtered(rows, unit, rng):
    """The rows, each behind a random filter (PNG specification, 9.2); `unit` is the number of bytes of a pixel."""
    out, before = b"", np.zeros(len(rows[0]), np.int32)
    for row in rows:
        now = np.frombuffer(row, np.uint8).astype(np.int32)
        left = np.concatenate([np.zeros(unit, np.int32), now[:-unit] if unit < len(now) else now[:0]])[: len(now)]
        corner = np.concatenate([np.zeros(unit, np.int32), before[:-unit] if unit < len(now) else now[:0]])[: len(now)]
        kind = rng.randrange(5)
        estimate = left + before - corner
        distances = np.abs(np.stack([estimate - left, estimate - before, estimate - corner]))
        paeth = np.choose(np.argmin(distances, axis=0), [left, before, corner])
        predicted = [0 * now, left, before, (left + before) // 2, paeth][kind]
        out += bytes([kind]) + ((now - predicted) % 256).astype(np.uint8).tobytes()
        before = now
    return out


def samples(rng, height, width, channels, largest):
    """Noise, a ramp, or few values, among them those around which decoders round or clip."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    shape = (height, width, channels)
    match rng.randrange(3):
        case 0:
            return numbers.integers(0, largest + 1, shape)
        case 1:
            return np.arange(height * width * channels).reshape(shape) * rng.randint(1, 300) % (largest + 1)
        case _:
            edges = [0, 1, largest, largest // 2, largest // 2 + 1, min(255, largest), min(256, largest), min(257, largest)]
            return numbers.choice(edges, shape)


def png(rng, of_labels=False):
    """A PNG file and its kind: every colour type and depth, filters, interlace, transparency, palettes, other chunks."""
    colour = rng.choice([GREY, PALETTE] if of_labels else list(CHANNELS))
    depth = rng.choice(DEPTHS[colour])
    width, height = rng.choice([1, 2, 3, 5, 7, 8, 9, 17, 33]), rng.choice([1, 2, 3, 4, 5, 8, 9, 16, 31])
    largest, extra, kind = 2**depth - 1, b"", f"png {NAMES[colour]} {depth}"
    if of_labels and depth == 16:
        largest = rng.choice([20, 255, 65535])
    if colour == PALETTE:
        entries = rng.choice([2**depth, rng.randint(1, 2**depth)])
        # Indices beyond a palette are mistakes of some writers.
        if rng.random() < 0.8:
            largest = entries - 1
        elif entries - 1 < largest:
            kind += " beyond"
        extra += chunk(b"PLTE", rng.randbytes(3 * entries))
    elif colour in (RGB, RGBA) and rng.random() < 0.2:
        extra += chunk(b"PLTE", rng.randbytes(30))
    pixels = samples(rng, height, width, CHANNELS[colour], largest)
    if colour in (GREY, RGB, PALETTE) and rng.random() < 0.4:
        kind += " tRNS"
        if colour == PALETTE:
            extra += chunk(b"tRNS", rng.randbytes(rng.randint(1, entries)))
        else:
            extra += chunk(b"tRNS", pixels[0, 0].astype(">u2").tobytes())
    before, after = b"", b""
    if rng.random() < 0.5:
        others = [
            chunk(b"gAMA", struct.pack(">I", rng.choice([45455, 100000, 22727]))),
            chunk(b"pHYs", struct.pack(">IIB", 2835, 2835, 1)),
            chunk(b"tEXt", b"Comment\0drawn"),
            chunk(b"sRGB", b"\0"),
            chunk(b"cHRM", struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)),
            chunk(b"tIME", struct.pack(">HBBBBB", 2020, 1, 2, 3, 4, 5)),
            # Orientation 6: a quarter turn.
            chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"),
        ]
        for other in rng.sample(others, rng.randint(1, 4)):
            before, after = (before + other, after) if rng.random() < 0.7 else (before, after + other)
    unit = max(1, CHANNELS[colour] * depth // 8)
    interlaced = rng.random() < 0.4
    kind += " interlaced" if interlaced else ""
    data = b""
    for x, dx, y, dy in PASSES if interlaced else [(0, 1, 0, 1)]:
        part = pixels[y::dy, x::dx]
        if part.size:
            data += filtered([pack(row.reshape(-1), depth) for row in part], unit, rng)
    data = zlib.compress(data, rng.choice([0, 1, 6, 9]))
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.choice([0, 0, 1, 3])))
    parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    body = chunk(b"IHDR", header) + before + extra + b"".join(chunk(b"IDAT", part) for part in parts)
    return b"\x89PNG\r\n\x1a\n" + body + after + chunk(b"IEND", b"") + (b"garbage" if rng.random() < 0.05 else b""), kind


def animated(rng):
    """An animation, of which the first picture counts."""
    frames = [Image.fromarray(samples(rng, 9, 11, 3, 255).astype(np.uint8)) for _ in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:], default_image=rng.random() < 0.5)
    return file.getvalue(), "png animated"


def jpeg(rng):
    """A JPEG file and its kind: grey, YCbCr, RGB, CMYK, YCCK; samplings, scans, restarts, tables, other segments."""
    mode = rng.choice(["L", "RGB", "RGB", "CMYK"])
    width, height = rng.choice([1, 2, 7, 8, 9, 15, 16, 17, 33, 50]), rng.choice([1, 3, 8, 9, 16, 17, 31, 40])
    pixels = samples(rng, height, width, {"L": 1, "RGB": 3, "CMYK": 4}[mode], 255).astype(np.uint8)
    if rng.random() < 0.5:
        # Smooth: large coefficients are rare.
        y, x = np.mgrid[0:height, 0:width]
        pixels = (pixels // 8 + (x * 3 + y * 2)[..., None] % 220).astype(np.uint8)
    image = Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode)
    options = {"quality": rng.choice([1, 10, 50, 75, 90, 95, 100]), "progressive": rng.random() < 0.4, "optimize": rng.random() < 0.4}
    kind = f"jpeg {mode}{' progressive' if options['progressive'] else ''}"
    if mode == "RGB":
        options["subsampling"] = rng.choice([0, 1, 2])
        if rng.random() < 0.2:
            options |= {"keep_rgb": True, "subsampling": 0}
            kind += " untransformed"
    if rng.random() < 0.3:
        options[rng.choice(["restart_marker_blocks", "restart_marker_rows"])] = rng.randint(1, 4)
        kind += " restarts"
    if rng.random() < 0.2:
        options |= {"qtables": [[rng.randint(1, 255) for _ in range(64)] for _ in range(2 if mode == "RGB" else 1)]}
        options.pop("quality")
    if rng.random() < 0.2:
        options["comment"] = b"drawn"
    if rng.random() < 0.2:
        exif = Image.Exif()
        exif[0x112] = rng.randint(1, 8)
        options["exif"] = exif
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    content = file.getvalue()
    if mode == "CMYK" and rng.random() < 0.5 and b"Adobe" in content:
        at = content.index(b"Adobe") + 11
        content, kind = content[:at] + b"\2" + content[at + 1 :], kind + " YCCK"
    if rng.random() < 0.15:
        # Bytes that may fill the space before a marker.
        content = content[:2] + b"\xff" * rng.randint(1, 3) + content[2:]
    if rng.random() < 0.1:
        content, kind = relabelled(content), kind + " other identifiers"
    return content + (rng.randbytes(20) if rng.random() < 0.1 else b""), kind


def relabelled(content):
    """The same file with the component identifiers 0, 1, 2 in place of 1, 2, 3."""
    content = bytearray(content)
    at = 2
    while at < len(content) - 4 and content[at] == 0xFF:
        while content[at + 1] == 0xFF:
            at += 1
        marker, length = content[at + 1], struct.unpack(">H", content[at + 2 : at + 4])[0]
        if marker in (0xC0, 0xC1, 0xC2):
            for component in range(content[at + 9]):
                content[at + 10 + 3 * component] -= 1
        if marker == 0xDA:
            for component in range(content[at + 4]):
                content[at + 5 + 2 * component] -= 1
            # Further scans of a progressive file follow their data.
            at = next((i for i in range(at + 2, len(content) - 1) if content[i] == 0xFF and content[i + 1] not in (0, *range(0xD0, 0xD8))), len(content))
            continue
        at += 2 + length
    return bytes(content)


def damaged(rng, content):
    content = bytearray(content)
    match rng.randrange(3):
        case 0:
            return bytes(content[: rng.randrange(len(content))])
        case 1:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        case _:
            at = rng.randrange(len(content))
            del content[at : at + rng.randint(1, 9)]
    return bytes(content)


def other(rng):
    """What often has the name of a PNG or JPEG file."""
    form = rng.choice(["GIF", "BMP", "WEBP", "TIFF", "PPM", "MPO"])
    file = io.BytesIO()
    Image.fromarray(samples(rng, 8, 9, 3, 255).astype(np.uint8)).save(file, form)
    return file.getvalue(), f"other {form}"


def draw(rng, label_map):
    """A file and its kind."""
    if label_map:
        return png(rng, of_labels=rng.random() < 0.9)
    return rng.choices([png, animated, jpeg, other], [50, 1, 45, 4])[0](rng)


def fnv1a64(data):
    z = 0xCBF29CE484222325
    for byte in data:
        z = (z ^ byte) * 0x100000001B3 % 2**64
    return z


def pillow(content, label_map):
    """What Pillow makes of a file, as the decoder of zoo prints it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(content))
            if not label_map:
                pixels = image.convert("RGB").tobytes()
            else:
                if image.mode not in ("1", "L", "P", "I;16", "I"):
                    return f"error: colours ({image.mode})"
                values = np.asarray(image.convert("L") if image.mode == "1" else image)
                if values.max() > 255:
                    return "error: labels beyond 255"
                pixels = values.astype(np.uint8).tobytes()
        return f"{image.width} {image.height} {fnv1a64(pixels):016x}"
    except Exception as error:  # noqa: BLE001 - Pillow raises many kinds for damaged files.
        return f"error: {type(error).__name__}: {error}"


def decoded(files, what):
    """What zoo makes of files."""
    command = ["cargo", "run", "--release", "--locked", "-q", "-p", "zoo-datasets", "--example", "decode", "--", what]
    listed = "".join(f"{file}\n" for file in files)
    return subprocess.run(command, cwd=ROOT, input=listed, capture_output=True, text=True, check=True).stdout.splitlines()


def outcome(kind, ours, theirs):
    match ours.startswith("error"), theirs.startswith("error"):
        case True, True:
            return "refused"
        case True, False:
            return "zoo"
        case False, True:
            return "pillow"
        case _:
            return "equal" if ours == theirs else "guessed" if kind == "jpeg damaged" else "DIFFERENT"


def compare(folder, seed, count, label_map, keep):
    """Draws files, compares, prints a table; returns the number of files with other pixels."""
    rng = random.Random(f"{seed} {label_map}")
    files, kinds, theirs = [], [], []
    for number in range(count):
        content, kind = draw(rng, label_map)
        if rng.random() < 0.1:
            content, kind = damaged(rng, content), kind.split()[0] + " damaged"
        files.append(folder / f"{'labels' if label_map else 'pixels'}-{number}")
        files[-1].write_bytes(content)
        kinds.append(kind)
        theirs.append(pillow(content, label_map))
    ours = decoded(files, "labels" if label_map else "pixels")
    table, shown = collections.Counter(), collections.Counter()
    for file, kind, our, their in zip(files, kinds, ours, theirs, strict=True):
        found = outcome(kind, our, their)
        table[kind, found] += 1
        shown[kind, found] += 1
        if found not in ("equal", "refused"):
            if shown[kind, found] <= 3:
                print(f"{found}: {file.name} ({kind}): zoo {our}; Pillow {their}")
            if keep:
                (keep / file.name).write_bytes(file.read_bytes())
    outcomes = ["equal", "refused", "zoo", "pillow", "guessed", "DIFFERENT"]
    print(f"{'label maps' if label_map else 'images':<54}" + "".join(f"{name:>10}" for name in outcomes))
    for kind in sorted({kind for kind, _ in table}):
        print(f"{kind:<54}" + "".join(f"{table[kind, name]:>10}" for name in outcomes))
    totals = [sum(n for (_, found), n in table.items() if found == name) for name in outcomes]
    print(f"{'all':<54}" + "".join(f"{total:>10}" for total in totals) + "\n")
    return totals[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        faults = sum(compare(Path(folder), given.seed, given.count, label_map, given.keep) for label_map in (False, True))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
