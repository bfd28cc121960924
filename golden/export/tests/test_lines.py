"""Emitted networks are no longer than those of the libraries: code lines, without comments, docstrings and empty lines."""

import ast
import inspect
import io
import re
import textwrap
import tokenize
from pathlib import Path

import pytest
from torchvision.models import densenet, resnet, vision_transformer
from torchvision.ops import misc
from transformers.models.gpt2 import modeling_gpt2

RECIPES = Path(__file__).parents[3] / "recipes"
SNAPSHOTS = RECIPES.parent / "harness/recipe/tests/snapshots"

MOST = 1.2
"""Lines of an emitted network, relative to those of the library."""

AUTHORS = {
    # The classes that the network uses; U-Net: mindspore-ai/models, official/cv/Unet/src/unet_medical/unet_parts.py (bb1730d) alone; DB:
    # MhLiao/DB, decoders/seg_detector.py (57a71d3) alone, without the backbone.
    "resnet50": [resnet.conv3x3, resnet.conv1x1, resnet.Bottleneck, resnet.ResNet],
    "densenet121": [densenet._DenseLayer, densenet._DenseBlock, densenet._Transition, densenet.DenseNet],
    "vit_b_16": [
        misc.MLP,
        vision_transformer.MLPBlock,
        vision_transformer.EncoderBlock,
        vision_transformer.Encoder,
        vision_transformer.VisionTransformer,
    ],
    "gpt2": [
        modeling_gpt2.GPT2Attention,
        modeling_gpt2.GPT2MLP,
        modeling_gpt2.GPT2Block,
        modeling_gpt2.GPT2Model,
        modeling_gpt2.GPT2LMHeadModel,
    ],
    "unet_medical": 94,
    "db_resnet": 122,
}


def code_lines(text: str) -> int:
    """Lines with code: neither comments nor docstrings alone."""
    text = textwrap.dedent(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, documented) and ast.get_docstring(node) is not None)
    docs = {line for node in nodes for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def emitted(name: str) -> str:
    """The snapshot of a program."""
    return (SNAPSHOTS / f"emit__{name}.snap").read_text().split("---\n", 2)[2]


@pytest.mark.parametrize("name", AUTHORS)
def test_a_network_is_no_longer_than_its_authors_wrote_it(name):
    theirs = AUTHORS[name]
    most = theirs if isinstance(theirs, int) else sum(code_lines(inspect.getsource(part)) for part in theirs)
    own = code_lines(emitted(name))
    print(f"{name}: {own} of {most}")
    assert own <= MOST * most


@pytest.mark.parametrize("name", AUTHORS)
def test_names_are_not_numbered(name):
    """`x1`, `out_2`, `Block3`: numbers come from taps of the recipe and the name of the network alone."""
    tree = ast.parse(emitted(name))
    named = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    named += [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    named += [node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    known = set(re.findall(r"\w+", (RECIPES / f"{name}.yaml").read_text()))
    numbered = [one for one in named if re.search(r"\d$", one) and one not in known]
    assert [one for one in numbered if one.lower() != name.replace("_", "")] == []


def test_comments_and_docstrings_are_no_code():
    assert code_lines('"""Doc."""\n\n# comment\ndef f():\n    """Doc\n    more."""\n    return [  # why\n        1,\n    ]\n') == 4
