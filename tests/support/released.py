"""Small files of released scores, in both layouts."""

import numpy as np
import polars as pl

from launch.common import released_scores
from launch.common.released_scores import Choices

ELO = """elo_rank,elo_score,name,elo_matches,Org/Model-A,Org/Model.B_v2
1,1700,Water,10,1.5,-2
2,1600,null,9,-0.5,4e1
3,1600,007,8,2,3
"""
TOKENS = """token_id,token_name,token_decoded,greatest,"What, of all?"
1,Ġlove, love,2.5,1
0,null,null,-1,2
2,,,0,3
3,<|eot|>,<|eot|>,0.25,4
"""
STEPS = """item,step-100,step-50
love,1.5,-2
war,-3,0.5
love,1.25,-2
"""
PROMPT = "What is best?"


def import_one(source, run, layout, **fields):
    choices = Choices(layout=layout, **fields)
    return released_scores.import_scores(str(source), str(run), choices)


def import_elo(source, run, prompt=PROMPT):
    return import_one(source, run, "items", prompt=prompt)


def logprobs(columns, rows=40, seed=0):
    values = np.random.default_rng(seed).normal(size=(rows, len(columns)))
    values -= np.log(np.exp(values).sum(axis=0))
    ids = {"token_id": range(rows), "token_name": map(str, range(rows))}
    tokens = {"token_decoded": [f" t{i}" for i in range(rows)]}
    return pl.DataFrame({**ids, **tokens, **dict(zip(columns, values.T, strict=True))})
