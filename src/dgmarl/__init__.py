"""dgmarl: cooperative multi-agent reinforcement learning with credit assignment through dependence
graphs."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Public names by module. Loaded on first use, so that `import dgmarl` and `dgmarl --help` are fast.
_EXPORTS = {
    "dgmarl.errors": ("UsageError",),
    "dgmarl.api": ("train", "resume", "sweep", "evaluate", "load"),
    "dgmarl.runs.run": ("Run",),
    "dgmarl.report.replay_page": ("show",),
    "dgmarl.runs.callbacks": ("Callback", "Progress"),
    "dgmarl.envs.registry": ("make_env",),
    "dgmarl.envs.base": ("EnvSpec", "Environment", "Outcome", "Observation"),
    "dgmarl.credit.gae": ("gae",),
    "dgmarl.credit.graph_gae": ("graph_gae", "soft_graph_gae", "credited_rewards"),
    "dgmarl.graphs.reach": ("meeting_times", "check_graph", "add_self_loops"),
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = ["__version__", *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]

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
    if name not in _MODULES:
        raise AttributeError(f"module 'dgmarl' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
