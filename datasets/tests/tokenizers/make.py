"""python make.py: makes the tokenizers of the tests with the `tokenizers` library, and prints what they make of texts."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

HERE = Path(__file__).parent

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
pairs = [("t", "h"), ("th", "e"), ("Ġ", "the")]
tokens = [*alphabet, *("".join(pair) for pair in pairs)]
byte_pairs = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, pairs))
byte_pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
byte_pairs.decoder = decoders.ByteLevel()
byte_pairs.save(str(HERE / "byte_pairs.json"), pretty=False)

letters = "abcdefghijklmnopqrstuvwxyz.,?"
pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), "the", "cat", "##at"]
word_pieces = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
word_pieces.normalizer = normalizers.BertNormalizer()
word_pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
word_pieces.decoder = decoders.WordPiece()
word_pieces.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
word_pieces.save(str(HERE / "word_pieces.json"), pretty=False)

print(byte_pairs.encode("the cat, the é", add_special_tokens=False).ids)
print(word_pieces.encode("The cats, zebra", add_special_tokens=False).ids)
