"""The commands that use the policies of a run: `evaluate`, `watch`, `graph`, `export`."""

from dataclasses import dataclass
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dgmarl.cli.common import (
    OptionalCount,
    Options,
    Output,
    OutputFile,
    PageFile,
    RunPath,
    Trust,
    counted,
    refuse_broken,
    status,
)
from dgmarl.config.yaml import parse_assignments
from dgmarl.errors import UsageError
from dgmarl.files import write_atomic

if TYPE_CHECKING:
    from dgmarl.runs.replays import Replay


@dataclass(frozen=True, kw_only=True)
class Trusting:
    """Option of commands that may execute code named in a run folder."""

    trust: Trust = False
    """Execute code that the run folder names, even if never trained or checked on this machine."""


@dataclass(frozen=True)
class Evaluate(Trusting):
    """Evaluate the policies of a run on new episodes and print their returns."""

    run_folder: RunPath
    """Run folder written by `dgmarl train`."""
    episodes: int = 100
    """Episodes per seed."""
    seed: int = 0
    """Random seed of the episodes."""
    which: Literal["last", "best"] = "last"
    """Each seed's final policy, or that of its best evaluation (biased: do not publish)."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from dgmarl import api
        from dgmarl.report.statistics import mean_interval
        from dgmarl.report.table import plain_interval

        run = api.load(self.run_folder, which=self.which, trust=self.trust)
        returns = run.evaluate(self.episodes, self.seed)
        first, means = run.config.seed, returns.mean(axis=1)
        overall = mean_interval(means)
        if self.json:
            seeds = {str(first + k): float(mean) for k, mean in enumerate(means)}
            facts = {"episodes": self.episodes, "which": self.which, "seeds": seeds}
            print(json_text({**facts, "mean": plain_interval(overall)}))
            return 0
        for k, (mean, spread) in enumerate(zip(means, returns.std(axis=1), strict=True)):
            print(
                f"seed {first + k}: return {mean:.3f} (standard deviation over episodes "
                f"{spread:.3f})"
            )
        interval = (
            "" if len(means) < 2 else f", 95 % interval [{overall.low:.3f}, {overall.high:.3f}]"
        )
        print(f"mean over {counted(len(means), 'seed')}: {overall.estimate:.3f}{interval}")
        return 0


@dataclass(frozen=True)
class Watch(Trusting):
    """Record episodes and write a page that replays them, with dependence graphs and credit."""

    what: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN|ENV")]]
    """Run folder, or environment id, module:Class or file.py:Class to watch random actions."""
    episodes: int = 3
    """Number of episodes to record."""
    seed: int = 0
    """Random seed of the episodes."""
    policy: Literal["last", "best", "random"] = "last"
    """Policy of a run folder: the final one, that of the best evaluation, or random actions."""
    trained_seed: OptionalCount = None
    """Seed of the run whose policy is used; default: the first."""
    out: Annotated[Path, Output(suffixes=(".html", ".htm", ".gif", ".mp4"))] = Path("replay.html")
    """Page to write; with .gif or .mp4 a movie of the first episode (needs dgmarl[viz])."""
    set: Options = ()
    """Option of the environment."""

    def run(self) -> int:
        if self.set and Path(self.what).is_dir():
            raise UsageError(
                f"--set is given, but the environment of the run {self.what} is fixed: leave it "
                "out, or name an environment."
            )
        from dgmarl.report.movie import SUFFIXES, require_movies, write_movie
        from dgmarl.report.replay_page import replay_page

        if self.out.suffix in SUFFIXES:
            require_movies(self.out)
        with status(f"recording {counted(self.episodes, 'episode')} of {self.what}"):
            replay = self._record()
            if self.out.suffix in SUFFIXES:
                write_movie(replay.episodes[0].frames, self.out)
            else:
                write_atomic(self.out, replay_page(replay))
        print(f"Open {self.out.absolute().as_uri()}")
        return 0

    def _record(self) -> "Replay":
        """Record all episodes, without a size limit."""
        import jax

        from dgmarl import api
        from dgmarl.envs.registry import make_env
        from dgmarl.rollout import act_randomly, record_episodes
        from dgmarl.runs.replays import UNLIMITED, make_replay

        key = jax.random.key(self.seed)
        if Path(self.what).is_dir():
            which = "best" if self.policy == "best" else "last"
            run = api.load(self.what, self.trained_seed, which, trust=self.trust)
            if self.policy != "random":
                return run.replay(key, self.episodes, self.policy, UNLIMITED)
            env = run.env
        else:
            _refuse_missing_run(self.what)
            env = make_env(self.what, **parse_assignments(self.set))
            refuse_broken(env, self.what)
        recording = record_episodes(env, act_randomly, key, self.episodes)
        return make_replay(env, recording, "random", most_bytes=UNLIMITED)


def _refuse_missing_run(what: str) -> None:
    """Raise UsageError for the path of a run folder that does not exist; others may name an
    environment."""
    from dgmarl.envs.registry import FAMILIES
    from dgmarl.runs.reading import similar_run

    folder, slash, _ = what.rpartition("/")
    if ":" in what or what.endswith(".py") or what.partition("/")[0] in FAMILIES:
        return
    similar = similar_run(Path(what))
    if similar or (slash and Path(folder or "/").is_dir()):
        advice = (
            ": name one that `dgmarl train` wrote, or an environment (`dgmarl envs` lists them)."
        )
        raise UsageError(f"There is no run folder {what}{similar or advice}")


@dataclass(frozen=True)
class Graph(Trusting):
    """Write a page that compares a run's graphs with the oracle and the interventional graphs, on
    recorded episodes."""

    run_folder: RunPath
    """Run folder written by `dgmarl train`; its final policy is used."""
    episodes: int = 3
    """Number of episodes to record."""
    seed: int = 0
    """Random seed of the episodes."""
    trained_seed: OptionalCount = None
    """Seed of the run whose policy is used; default: the first."""
    out: PageFile = Path("graph.html")
    """Page to write."""

    def run(self) -> int:
        import jax

        from dgmarl import api
        from dgmarl.report.graph_page import graph_page
        from dgmarl.report.results import run_or_reason
        from dgmarl.runs.graphs import record_graphs

        with status(f"recording {counted(self.episodes, 'episode')} of {self.run_folder}"):
            run = api.load(self.run_folder, self.trained_seed, trust=self.trust)
            name = f"{run.config.method} (seed {run.config.seed + run.index})"
            compared = record_graphs(run, jax.random.key(self.seed), self.episodes, name)
            write_atomic(self.out, graph_page(compared, run_or_reason(self.run_folder)))
        print(f"Open {self.out.absolute().as_uri()}")
        return 0


@dataclass(frozen=True)
class Export(Trusting):
    """Export the policy of a run for use without dgmarl: FILE.stablehlo for jax.export, or FILE.py
    and FILE.npz for NumPy alone."""

    run_folder: RunPath
    """Run folder written by `dgmarl train`."""
    out: OutputFile
    """File to write; the suffix .stablehlo or .py selects the format."""
    trained_seed: OptionalCount = None
    """Seed of the run whose policy is exported; default: the first."""
    which: Literal["last", "best"] = "last"
    """The final policy, or that of the best evaluation."""
    greedy: bool = True
    """Greedy rather than sampled actions (.stablehlo; the NumPy policy offers both)."""

    def run(self) -> int:
        from dgmarl import api
        from dgmarl.runs.export import check_export

        check_export(self.out)
        run = api.load(self.run_folder, self.trained_seed, self.which, trust=self.trust)
        for path in run.export(self.out, greedy=self.greedy):
            print(path)
        return 0
