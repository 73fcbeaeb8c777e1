"""dgmarl: cooperative multi-agent reinforcement learning with credit assignment through dependence
graphs."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Public name -> module. Loaded on first use, so that `import dgmarl` and `dgmarl --help` are fast.
_EXPORTS = {
    "UsageError": "dgmarl.errors",
    "train": "dgmarl.api",
    "resume": "dgmarl.api",
    "sweep": "dgmarl.api",
    "evaluate": "dgmarl.api",
    "load": "dgmarl.api",
    "Run": "dgmarl.runs.run",
    "show": "dgmarl.report.replay_page",
    "Callback": "dgmarl.runs.callbacks",
    "Progress": "dgmarl.runs.callbacks",
    "make_env": "dgmarl.envs.registry",
    "EnvSpec": "dgmarl.envs.base",
    "Environment": "dgmarl.envs.base",
    "Outcome": "dgmarl.envs.base",
    "Observation": "dgmarl.envs.base",
    "gae": "dgmarl.credit.gae",
    "graph_gae": "dgmarl.credit.graph_gae",
    "soft_graph_gae": "dgmarl.credit.graph_gae",
    "credited_rewards": "dgmarl.credit.graph_gae",
    "meeting_times": "dgmarl.graphs.reach",
    "check_graph": "dgmarl.graphs.reach",
    "add_self_loops": "dgmarl.graphs.reach",
}

__all__ = ["__version__", *_EXPORTS]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from dgmarl.api import evaluate as evaluate
    from dgmarl.api import load as load
    from dgmarl.api import resume as resume
    from dgmarl.api import sweep as sweep
    from dgmarl.api import train as train
    from dgmarl.credit.gae import gae as gae
    from dgmarl.credit.graph_gae import credited_rewards as credited_rewards
    from dgmarl.credit.graph_gae import graph_gae as graph_gae
    from dgmarl.credit.graph_gae import soft_graph_gae as soft_graph_gae
    from dgmarl.envs.base import Environment as Environment
    from dgmarl.envs.base import EnvSpec as EnvSpec
    from dgmarl.envs.base import Observation as Observation
    from dgmarl.envs.base import Outcome as Outcome
    from dgmarl.envs.registry import make_env as make_env
    from dgmarl.errors import UsageError as UsageError
    from dgmarl.graphs.reach import add_self_loops as add_self_loops
    from dgmarl.graphs.reach import check_graph as check_graph
    from dgmarl.graphs.reach import meeting_times as meeting_times
    from dgmarl.report.replay_page import show as show
    from dgmarl.runs.callbacks import Callback as Callback
    from dgmarl.runs.callbacks import Progress as Progress
    from dgmarl.runs.run import Run as Run


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'dgmarl' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
