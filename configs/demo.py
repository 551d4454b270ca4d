"""The whole path on the embedded reward models: build, convert, sweep, search, report.

    make demo        (python -m launch.demo)

Writes out/demo/report/index.html. About five minutes on two cores; again, seconds.
"""

from configs import common, gcg


def get_config():
    """All keys; `--config.key=value` overrides one."""
    config = common.scoring()
    config.root = "out/demo"  # hf/, checkpoints/, run/ and report/ lie below it
    config.models = ""  # slugs of demo/embedded_models.py, comma-separated; all of them by default
    config.prompts = "greatest,best,worst"  # ids of configs/prompts.py
    config.mode = "ids"
    config.part_size = 8192
    config.searched = 2  # how many of the models are searched: each is compiled anew
    config.search = gcg.get_config()  # of the first prompt, both directions
    config.search.length = 4
    config.search.steps = 20
    config.search.candidates = 64
    config.search.topk = 64
    return config
