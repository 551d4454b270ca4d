"""The page in a notebook: `RewardModel.explore`."""

from collections.abc import Sequence

from flax import nnx

from configs import serve as serve_config
from engine.checkpoint.card import Checkpoint
from engine.scoring.reward_passes import RewardScorer
from engine.settings import SweepSettings
from launch.common.scoring import given_fields
from launch.serving.app import NOTEBOOKS
from launch.serving.desk import Job
from launch.serving.explorer import Explorer, Model
from launch.serving.server import HOST, Server, bind


def explore(
    loaded: Sequence[tuple[Checkpoint, RewardScorer]], run: str | None, port: int
) -> Server:
    """Serves models that are on devices already, in threads; see `RewardModel.explore`."""
    first = loaded[0][1]
    dtype = nnx.merge(first.graph, first.params).decoder.embedding[...].dtype
    fields = given_fields(SweepSettings, serve_config.get_config())
    settings = SweepSettings(**{**fields, "dtype": str(dtype), "step_size": first.step_size})
    explorer = Explorer([Model.of(*each) for each in loaded], settings, run)
    explorer.desk.enter(Job(lambda job: explorer.warm_up(), lambda event, data: None))
    return Server(explorer, bind(HOST, port), framed=NOTEBOOKS)
