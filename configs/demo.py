"""The demo: build, convert, sweep and search the embedded reward models, and write the report.

    make demo        (python -m launch.demo)

Writes out/demo/report/index.html. Takes about four minutes on two cores; a second run takes
seconds.
"""

from configs import common, gcg


def get_config():
    """Every setting of `launch.demo`."""
    config = common.scoring()
    config.root = "out/demo"  # hf/, checkpoints/, run/ and report/ lie below it
    config.models = ""  # slugs of demo/embedded_models.py, comma-separated; "": all
    config.prompts = "greatest,best,worst"  # ids of configs/prompts.py
    config.mode = "ids"
    config.part_size = 8192
    config.searched = 2  # number of models that are searched, each compiled for itself; 0: none
    config.search = gcg.get_config()  # under the first prompt, in both directions
    config.search.length = 4
    config.search.steps = 20
    config.search.candidates = 64
    config.search.topk = 64
    return config
