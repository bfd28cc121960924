"""Checks exported models with onnxruntime: the ONNX checker, shape inference, and the outputs for the same input.

    python benches/against_onnxruntime.py resnet50 googlenet siammask [--zoo target/release/zoo] [-- zoo's options]

Needs onnx, onnxruntime, numpy and safetensors. The weights are random and scaled so that activations stay near 1 at any
depth; running statistics differ from their initial values. For each recipe, the script prints the largest difference of
each output relative to its largest magnitude; the floor, which is the difference between zoo's fast and reference
kernels; and the verdict: the difference must be at most ten floors.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

# The floor is at least a few roundings of f32, even if the kernels agree better.
LEAST = 2.0**-20
FACTOR = 10


def weights(model):
    """Random weights for the initializers of a model that have names of a state_dict."""
    random = numpy.random.default_rng(0)
    tensors = {}
    for tensor in onnx.load(str(model)).graph.initializer:
        shape, leaf = tuple(tensor.dims), tensor.name.rsplit(".", 1)[-1]
        if leaf == "running_var":
            value = random.uniform(0.5, 1.5, shape)
        elif leaf in ("running_mean", "bias"):
            value = random.normal(0, 0.1, shape)
        elif leaf == "weight" and len(shape) == 1:
            value = random.uniform(0.5, 1, shape)
        elif leaf == "weight":
            # He initialisation: arXiv 1502.01852.
            value = random.normal(0, (2 / numpy.prod(shape[1:])) ** 0.5, shape)
        else:
            continue
        tensors[tensor.name] = value.astype(numpy.float32)
    return tensors


def far(value, truth):
    """The largest difference, relative to the largest magnitude."""
    return float(numpy.abs(value - truth).max()) / max(float(numpy.abs(truth).max()), 1e-30)


def judge(zoo, recipe, options):
    with tempfile.TemporaryDirectory() as folder:
        model, sample = pathlib.Path(folder, "net.onnx"), pathlib.Path(folder, "net.safetensors")
        trained = str(pathlib.Path(folder, "weights.safetensors"))
        command = [zoo, "export", recipe, "--out", str(model), *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return "refused", done.stderr.strip().splitlines()[0]
        # Parameters that the recipe declares and the network never uses are not part of the model.
        save_file(weights(model), trained)
        known = subprocess.run([zoo, "weights", "import", recipe, trained, "--format", "json", *options], capture_output=True, text=True)
        absent = {tensor["name"]: numpy.zeros(tensor["shape"], numpy.float32) for tensor in json.loads(known.stdout)["missing"]}
        save_file(weights(model) | absent, trained)
        command += ["--checkpoint", trained]
        subprocess.run([*command, "--sample", str(sample)], check=True, capture_output=True)
        reference = str(pathlib.Path(folder, "reference.safetensors"))
        slow = [*command, "--sample", reference, "--set", "engine.kernels=reference"]
        subprocess.run(slow, check=True, capture_output=True)
        onnx.checker.check_model(str(model), full_check=True)
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        tensors = load_file(str(sample))
        kinds = {"tensor(float)": numpy.float32, "tensor(int32)": numpy.int32, "tensor(int64)": numpy.int64}
        inputs = {i.name: tensors[f"input.{i.name}"].astype(kinds[i.type]) for i in session.get_inputs()}
        outputs = {name.removeprefix("output."): value for name, value in tensors.items() if name.startswith("output.")}
        names = [output.name for output in session.get_outputs()]
        assert sorted(names) == sorted(outputs), (names, list(outputs))
        worst = {}
        for name, value in zip(names, session.run(names, inputs)):
            assert value.shape == outputs[name].shape, (name, value.shape, outputs[name].shape)
            worst[name] = far(value, outputs[name])
        # If the model accepts any batch size, run another batch: each sample must give the same result as alone.
        if session.get_inputs()[0].shape[0] == "batch":
            twice = {name: numpy.concatenate([value, value[:, ::-1].copy()]) for name, value in inputs.items()}
            for name, value in zip(names, session.run(names, twice)):
                worst[name] = max(worst[name], far(value[:1], outputs[name]))
        other = load_file(reference)
        floors = {name: far(other[f"output.{name}"], outputs[name]) for name in names}
        passed = all(worst[name] <= FACTOR * max(floors[name], LEAST) for name in names)
        words = (f"{name} {error:.1e} (floor {floors[name]:.1e})" for name, error in worst.items())
        return ("pass" if passed else "FAIL"), ", ".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--zoo", default="target/release/zoo")
    arguments, options = parser.parse_known_args()
    failed = False
    for recipe in arguments.recipes:
        verdict, why = judge(arguments.zoo, recipe, options)
        failed |= verdict == "FAIL"
        print(f"{recipe:22} {verdict:8} {why}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
