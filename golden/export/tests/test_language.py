"""The language models compute what those of transformers do."""

import unittest

try:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from zoo_golden.language import Gpt, Llama, llama_of_transformers
    from zoo_golden.qwen3 import balance, qwen3_moe, qwen3_moe_of_transformers
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed") from missing


class Transformers(unittest.TestCase):
    def compare(self, ours, theirs, state):
        theirs.load_state_dict(state)
        ours, theirs = ours.eval(), theirs.eval()
        tokens = torch.randint(0, 60, (3, 16), generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            logits = ours(tokens)
            torch.testing.assert_close(theirs(tokens).logits, logits, rtol=0, atol=2e-6 * logits.abs().max().item())

    def test_llama(self):
        ours = Llama(vocabulary=60, layers=2)
        self.compare(ours, llama_of_transformers(vocabulary=60, layers=2), ours.state_dict())

    def test_qwen3_moe(self):
        ours = qwen3_moe()
        theirs = qwen3_moe_of_transformers()
        self.compare(ours, theirs, ours.state_dict())
        tokens = torch.arange(32).reshape(2, 16)
        ours(tokens)
        even = theirs(tokens).aux_loss
        torch.testing.assert_close(balance(ours), even, rtol=1e-6, atol=0)

    def test_gpt2(self):
        ours = Gpt(vocabulary=60, length=16, layers=2, heads=4, width=64, bias=True, approximate="tanh")
        config = GPT2Config(vocab_size=60, n_positions=16, n_embd=64, n_layer=2, n_head=4, n_inner=256)
        matrices = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
        state = {name: value.t() if name.endswith(matrices) else value for name, value in ours.state_dict().items()}
        self.compare(ours, GPT2LMHeadModel(config), state)


if __name__ == "__main__":
    unittest.main()
