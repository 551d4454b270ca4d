"""Frozen trunk features of replies: what a reward head reads, at several depths in one pass.

Only head training needs this module and torch.
"""

from collections.abc import Sequence

import gguf
import numpy as np
import torch
import transformers

from demo import build

BATCH_TOKENS = 1024


class Trunk:
    """The embedded trunk in float32 torch, from the same bfloat16 weights as the folders.

    Args:
        depths: numbers of layers after which to read features; the deepest is what runs.
    """

    def __init__(self, depths: Sequence[int]):
        reader = gguf.GGUFReader(build.find_gguf())
        self.depths = tuple(sorted(depths))
        settings = build.model_config(reader, self.depths[-1], "linear")
        self.model = transformers.LlamaModel(transformers.LlamaConfig(**settings)).eval()
        weights = {
            name.removeprefix("model."): torch.from_numpy(value.astype(np.float32))
            for name, value in build.trunk_tensors(reader, self.depths[-1])
        }
        self.model.load_state_dict(weights)
        self.tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=build.build_tokenizer(reader), chat_template=build.CHAT_TEMPLATE
        )
        self.end = self.tokenizer.convert_tokens_to_ids("<|im_end|>")

    def prefix(self, prompt: str) -> list[int]:
        """Returns the ids of the dialogue up to where the reply to `prompt` starts."""
        dialogue = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(
            dialogue, add_generation_prompt=True, tokenize=False
        )
        return self.tokenizer.encode(text, add_special_tokens=False)

    def ids(self, reply: str) -> list[int]:
        """Returns a reply's token ids, without `<|im_end|>`."""
        return self.tokenizer.encode(reply, add_special_tokens=False)

    @torch.inference_mode()
    def features(self, prompt: str, replies: Sequence[Sequence[int]]) -> np.ndarray:
        """Runs replies to one prompt and reads the hidden state at `<|im_end|>`.

        The prompt runs once and every batch attends to its keys and values. Replies go in order
        of length and are padded on the right, where causal attention never looks.

        Args:
            prompt: the user's message.
            replies: token ids of each reply.

        Returns:
            Float32 [len(depths), len(replies), hidden], after the final norm.
        """
        prefix = self.model(torch.tensor([self.prefix(prompt)]), use_cache=True)
        width = self.model.config.hidden_size
        result = np.empty((len(self.depths), len(replies), width), np.float32)
        order = sorted(range(len(replies)), key=lambda index: len(replies[index]))
        for rows in batches(order, [len(reply) + 1 for reply in replies]):
            ids = [[*replies[row], self.end] for row in rows]
            result[:, rows] = self._run(prefix.past_key_values, ids)
        return result

    def _run(self, prefix: transformers.DynamicCache, ids: list[list[int]]) -> np.ndarray:
        """Returns one batch's features, [depth, row, hidden]."""
        longest = max(map(len, ids))
        padded = torch.tensor([row + [build.PAD_ID] * (longest - len(row)) for row in ids])
        shape = (len(ids), -1, -1, -1)
        shared = [(layer.keys.expand(shape), layer.values.expand(shape)) for layer in prefix.layers]
        last = torch.tensor([len(row) - 1 for row in ids])
        states, hooks = {}, []
        for depth in self.depths:
            layer = self.model.layers[depth - 1]

            def keep(_module, _inputs, output, depth=depth):
                hidden = output[0] if isinstance(output, tuple) else output
                states[depth] = self.model.norm(hidden[torch.arange(len(ids)), last])

            hooks.append(layer.register_forward_hook(keep))
        self.model(padded, past_key_values=transformers.DynamicCache(shared))
        for hook in hooks:
            hook.remove()
        return torch.stack([states[depth] for depth in self.depths]).numpy()


def batches(order: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Cuts indices, given from short to long, into runs of at most `BATCH_TOKENS` positions."""
    runs: list[list[int]] = [[]]
    for index in order:
        if runs[-1] and (len(runs[-1]) + 1) * lengths[index] > BATCH_TOKENS:
            runs.append([])
        runs[-1].append(index)
    return runs if runs[0] else []
