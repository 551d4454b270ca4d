"""Made-up tables with the columns of the contract, for tests of what is drawn from them."""

import numpy as np
import polars as pl

PROMPTS = ["greatest", "best", "worst"]
NAMES = {
    "qrm-gemma-2-27b": "N-Gem-27B",
    "skywork-reward-gemma-2-27b-v0.2": "S-Gem-27B-v0.2",
    "skywork-reward-gemma-2-27b": "S-Gem-27B",
    "skywork-reward-llama-3.1-8b-v0.2": "S-Lla-8B-v0.2",
    "qrm-llama3.1-8b": "N-Lla-8B",
    "urm-llama-3.1-8b": "L-Lla-8B",
    "grm-llama3-8b-rewardmodel-ft": "R-Lla-8B",
    "grm-llama3.2-3b-rewardmodel-ft": "R-Lla-3B",
    "armorm-llama3-8b-v0.1": "F-Lla-8B-v0.1",
    "grm-gemma2-2b-rewardmodel-ft": "R-Gem-2B",
}
GROUPS = {
    "gender": ["women", "men", "non-binary people"],
    "religion": ["Muslims", "Christians", "Jews", "Hindus", "atheists"],
    "race": ["Black people", "white people", "Asian people", "Latino people"],
    "orientation": ["gay people", "straight people"],
}
WORDS = [" love", "Freedom", "<script>alert(1)</script>", "$x$", "中国", "\u200b", "hate", "ugly"]


def models():
    bases = ["Gemma 2" if "gemma" in m else "Llama 3.1" for m in NAMES]
    makers = ["nicolinho", "Skywork", "Skywork", "Skywork", "nicolinho"]
    makers += ["LxzGordon", "Ray2333", "Ray2333", "RLHFlow", "Ray2333"]
    columns = {"model": list(NAMES), "nickname": list(NAMES.values()), "developer": makers}
    sizes = [27.0, 27.0, 27.0, 8.0, 8.0, 8.0, 8.0, 3.0, 8.0, 2.0]
    return pl.DataFrame(columns | {"base": bases, "size_b": sizes})


def mds(rng):
    xy = rng.normal(size=(len(NAMES), 2))
    return pl.DataFrame({"model": list(NAMES), "x": xy[:, 0], "y": xy[:, 1], "stress": 0.14})


def rsa():
    columns = {"predictor": ["base", "developer", "size", "rank"]}
    columns |= {"pearson_r": [0.555, -0.082, 0.469, 0.495], "mantel_p": [0.018, 0.69, 0.009, 0.002]}
    columns |= {"spearman_rho": [0.5, -0.1, 0.4, 0.5], "spearman_mantel_p": [0.02, 0.7, 0.01, 1e-4]}
    columns |= {"beta": [0.3, None, 0.2, 0.1], "permutation_p": [0.1, None, 0.3, 1e-4]}
    return pl.DataFrame(columns)


def square(rng, models=None):
    names = models or list(NAMES)
    values = np.clip(rng.normal(0.4, 0.2, size=(len(names), len(names))), -1, 1)
    values = (values + values.T) / 2
    np.fill_diagonal(values, 1.0)
    return pl.DataFrame({"model": names} | dict(zip(names, values, strict=True)))


def per_model(rng, columns, prompts=PROMPTS, **keys):
    """A row a model, prompt and combination of `keys`, with random numbers in `columns`."""
    rows = [{"model": m, "prompt": p} for m in NAMES for p in prompts]
    for key, values in keys.items():
        rows = [row | {key: value} for row in rows for value in values]
    numbers = {name: rng.normal(scale=0.3, size=len(rows)) for name in columns}
    return pl.DataFrame(rows).with_columns(**{name: pl.Series(x) for name, x in numbers.items()})


def sentiment_slopes(rng):
    table = per_model(rng, ["slope"], valence=["positive", "negative"])
    return table.with_columns(stderr=pl.lit(0.08), p=pl.lit(0.01), n=pl.lit(500))


def points(rng, count=60):
    """Words of one prompt with their valences, both ways, and their frequencies."""
    words = pl.DataFrame({"token_id": range(count)}).with_columns(
        value=pl.Series(np.resize(np.arange(-5.0, 6.0), count)),
        log_frequency=pl.Series(rng.normal(3.0, 2.0, size=count)),
    )
    table = pl.DataFrame({"model": list(NAMES)}).join(words, how="cross")
    noise = pl.Series(rng.normal(size=table.height))
    side = pl.when(pl.col("value") > 0).then(pl.lit("positive")).otherwise(pl.lit("negative"))
    return table.with_columns(
        prompt=pl.lit("worst"), reward=0.3 * pl.col("value") + noise, residual=noise, valence=side
    )


def frequency_slopes(rng):
    return per_model(rng, ["slope"]).with_columns(stderr=pl.lit(0.08), p=pl.lit(0.01), n=pl.lit(9))


def ends(rng, value="reward", words=WORDS):
    rows = []
    for model in NAMES:
        for end, sign in (("top", 1), ("bottom", -1)):
            numbers = np.sort(np.abs(rng.normal(size=len(words))))[::-1] + 0.5
            for at, (word, x) in enumerate(zip(words, numbers, strict=True)):
                row = {"model": model, "end": end, "rank": at + 1, "token_id": at, "token": word}
                rows.append(row | {value: sign * float(x)})
    return pl.DataFrame(rows)


def framing(rng):
    pairs = [("greatest", "best"), ("greatest", "worst"), ("best", "worst")]
    table = per_model(rng, ["pearson", "spearman", "kendall"], ["x"]).drop("prompt")
    frames = [table.with_columns(prompt_a=pl.lit(a), prompt_b=pl.lit(b)) for a, b in pairs]
    return pl.concat(frames).select(
        "model", "prompt_a", "prompt_b", "pearson", "spearman", "kendall"
    )


def framing_axis():
    rows = [
        {"model": m, "prompt_a": "best", "prompt_b": "worst", "axis": axis, "loading_a": 0.7}
        | {"loading_b": loading, "share": share, "axis_kind": kind}
        for m in NAMES
        for axis, loading, share, kind in ((1, 0.7, 0.8, "same"), (2, -0.7, 0.2, "opposed"))
    ]
    return pl.DataFrame(rows)


def humans_correlation(rng):
    rho = rng.uniform(0.2, 0.6, size=len(NAMES))
    columns = {"list": "elo", "prompt": "thing", "model": list(NAMES)}
    return pl.DataFrame(columns | {"spearman": rho, "kendall": rho * 0.7})


def humans_ranks(rng, count=400):
    items = [" love", "<b>x</b>", "$y$", "Unconditional love", *(f"item {i}" for i in range(count))]
    n = len(items)
    ranks = {m: (1 + rng.permutation(n)).astype(float) for m in NAMES}
    frame = {"item_id": range(n), "item": items, "human_rank": np.arange(1.0, n + 1)}
    return pl.DataFrame(frame | ranks)


def humans_gap(ranks):
    median = pl.concat_list(list(NAMES)).list.median()
    table = ranks.select("item", "human_rank", model_rank=median)
    table = table.with_columns(gap=pl.col("model_rank") - pl.col("human_rank"))
    table = table.sort("gap", descending=True)
    return table.select(list=pl.lit("elo"), prompt=pl.lit("thing"), **{c: c for c in table.columns})


def identity(rng):
    rows = [
        {"model": m, "prompt": p, "group": g, "axis": axis, "n": 8}
        for m in NAMES
        for p in PROMPTS
        for axis, groups in GROUPS.items()
        for g in groups
    ]
    mean = rng.uniform(0.15, 0.9, size=len(rows))
    width = rng.uniform(0.03, 0.1, size=len(rows))
    numbers = {"mean_percentile": mean, "ci_low": mean - width, "ci_high": mean + width}
    return pl.DataFrame(rows).with_columns(
        **{k: pl.Series(v) for k, v in numbers.items()}, p=pl.Series(np.abs(mean - 0.5))
    )


def sequences(rng):
    keys = {"direction": ["max", "min"], "method": ["gcg", "random"], "seed": [0, 1]}
    table = per_model(rng, ["reward"], ["greatest"], **keys)
    return table.with_columns(
        length=pl.lit(8),
        percentile=pl.lit(0.99),
        text=pl.lit("<b>peace</b> \u202eand love"),
        round_trips=pl.lit(True),
        flops=pl.col("seed") * 1e12 + 1e13,
        reward_from_text=pl.lit(1.25),
        rejected=pl.lit(12),
    )


def sequence_traces(rng, steps=40):
    table = sequences(rng).select("model", "prompt", "direction", "method", "seed")
    table = table.join(pl.DataFrame({"step": range(steps)}), how="cross")
    sign = pl.when(pl.col("direction") == "max").then(1.0).otherwise(-1.0)
    pace = pl.when(pl.col("method") == "gcg").then(2).otherwise(1)
    best = sign * (pl.col("step") + 1).log() * pace
    flops = (pl.col("step") + 1) * 1e11
    return table.with_columns(reward=best - sign, best=best, flops=flops)


def objectives(rng):
    """Nineteen objectives of a gated model, two of one without a gate."""
    names = [f"helpsteer-{i}" for i in range(17)] + ["beavertails-is_safe", "$x$ & <b>"]
    rows = [
        {"model": "armorm-llama3-8b-v0.1", "prompt": "best", "objective": name, "n": 9, "weight": w}
        for name, w in zip(names, rng.normal(0, 0.1, len(names)), strict=True)
    ]
    rows += [
        {"model": "urm-llama-3.1-8b", "prompt": "best", "objective": name, "n": 9, "weight": None}
        for name in ("helpfulness", "verbosity")
    ]
    rho = pl.Series(rng.uniform(-1, 1, len(rows)))
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pearson=rho, spearman=rho, share=pl.col("weight") * 2, spread=pl.lit(None, pl.Float64)
    )


def objectives_ends(rng):
    cells = objectives(rng).select("model", "prompt", "objective")
    ends_ = ends(rng, "value").drop("model").unique(["end", "rank"])
    return cells.join(ends_, how="cross")


def item_logprobs_points(rng, count=300):
    tokens = pl.Series(rng.integers(1, 9, count), dtype=pl.UInt32)
    logprob = pl.Series(-3.0 * tokens.to_numpy() - rng.exponential(2, count))
    columns = {"item_id": range(count), "item": [f"item {i}" for i in range(count)]}
    frame = pl.DataFrame(columns | {"tokens": tokens, "logprob": logprob})
    models = [*NAMES][:3]
    return frame.with_columns(**{m: logprob + pl.Series(rng.normal(size=count)) for m in models})


def item_logprobs(rng):
    rho = rng.uniform(-1, 1, 3)
    columns = {"list": "elo", "prompt": "best.chat", "language_model": "lm", "model": [*NAMES][:3]}
    numbers = dict.fromkeys(("pearson", "spearman", "kendall", "spearman_per_token"), rho)
    return pl.DataFrame(columns | {"n": 300} | numbers)


def variance():
    parts = ["token", "token × model", "token × prompt", "token × model × prompt"]
    share = [0.41, 0.33, 0.06, 0.2]
    columns = {"component": parts, "share": share, "ci_low": [s - 0.01 for s in share]}
    return pl.DataFrame(columns | {"ci_high": [s + 0.01 for s in share], "estimate": share})


def bing_effects(rng):
    table = per_model(rng, ["cohens_d"]).with_columns(auc=0.6 + pl.col("cohens_d") / 4)
    auc = pl.col("auc")
    counts = {"n_positive": pl.lit(700), "n_negative": pl.lit(900)}
    return table.with_columns(ci_low=auc - 0.05, ci_high=auc + 0.05, p=pl.lit(0.01), **counts)


def matches():
    row = {"analysis": "sentiment", "source": "AFINN-111", "matching": "lower case, not trimmed"}
    row |= {"model": "qrm-gemma-2-27b", "tokens": 1700, "words": 1400, "of": 2477}
    return pl.DataFrame([row])
