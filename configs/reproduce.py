"""The paper again: its ten reward models, its analyses, and a verdict on each published value.

    assay reproduce --root=<dir> --plan           what would be done: bytes, disk, memory, hours
    assay reproduce --root=<dir> [--models=<slug>,…] [--source-dir=<folder of model folders>]
      [--elo=<csv>] [--only=<stage>,…] [--keep=none]

Writes <root>/paper.html. Every stage keeps finished work: a second call goes on where the first one
was stopped. --plan estimates the time; for the ten models it is hours on one H100.
"""

import ml_collections

from configs import common, gcg, known_models


def get_config() -> ml_collections.ConfigDict:
    """Every setting of `launch.reproduce`."""
    config = common.scoring()
    # What the two readings differ in is not set here: docs/reproduce-the-paper.md lists it.
    del config.pooling, config.objectives
    config.prompts = "greatest,best,worst"  # ids of configs/prompts.py
    config.item_prompt = "elo_greatest"  # of the items
    # Another dtype in which the paper's conventions are run once more: float32 on an accelerator,
    # bfloat16 on a CPU. What the two differ by is the noise of "within noise". "": not measured,
    # because float32 takes half as long again on one H100, and models of 27B do not fit.
    config.second_dtype = ""
    # Language models of Tables A1-A5: slugs of `assay models`, "" for none, or "paper": all ten
    # with --models=paper, otherwise those that --models names.
    config.language_models = "paper"
    # Models that are searched: "all" of --models, some of their slugs, or "" for none.
    config.searched = "all"
    config.search = gcg.get_config("paper")
    config.search.wrong_sign = True  # as the paper's code: it minimised by the gradient of max
    # What --readings changes one at a time: `all` that a model allows, or some of bos, date,
    # newlines, mode, pooling, head, softcap, dtype; and the dates and dtypes that are tried.
    config.dimensions = "all"
    config.dates = known_models.DATE
    config.dtypes = "float32,bfloat16,float16"
    # Whether a folder must have the head and the bytes that are known of the published model.
    config.check_identity = True
    config.afinn = ""  # Path of an AFINN file; "": the package afinn, if installed.
    config.frequency = ""  # Path of a BNC word list, as the paper's; "": the package wordfreq.
    config.bing = ""  # Path of a Bing Liu lexicon (word, sentiment); "": Figure A3 is left out.
    config.permutations = 9_999  # Draws of each permutation test.
    config.bootstraps = 2_000  # Draws of each bootstrap interval.
    return config
