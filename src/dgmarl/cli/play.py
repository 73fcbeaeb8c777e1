"""The commands that play the policies of a run: `evaluate`, `watch`, `graph`, `export`."""

from dataclasses import dataclass
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dgmarl.cli.common import (
    OptionalCount,
    Options,
    OutputFile,
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
    """Commands that may execute code which a run folder names."""

    trust: Trust = False
    """Execute the code that the folder names (environment, graph, network), module:Class or
    file.py:Class, even if it was never trained or checked here."""


@dataclass(frozen=True)
class Evaluate(Trusting):
    """Play fresh episodes with the policies of a run and report their returns."""

    run_folder: RunPath
    """The folder that `dgmarl train` wrote."""
    episodes: int = 100
    """Episodes per seed."""
    seed: int = 0
    """Seed of the play."""
    which: Literal["last", "best"] = "last"
    """The policies after the last step, or each seed's best at an evaluation (chosen by luck too:
    do not publish it)."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from dgmarl import api
        from dgmarl.report.statistics import mean_interval
        from dgmarl.report.table import plain_interval
        from dgmarl.runs.folder import RunFolder

        returns = api.evaluate(
            self.run_folder, self.episodes, self.seed, self.which, trust=self.trust
        )
        first, means = RunFolder(self.run_folder).config().seed, returns.mean(axis=1)
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
    """Play episodes and write a page in which to watch them, with dependence arrows and where
    credit goes."""

    what: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN|ENV")]]
    """A run folder (its trained policy plays), or an environment id, module:Class or file.py:Class
    (random play)."""
    episodes: int = 3
    """How many episodes to record."""
    seed: int = 0
    """Seed of the play; the same seed gives the same page."""
    policy: Literal["last", "best", "random"] = "last"
    """Who plays in a run folder: the policy after the last step, the best at an evaluation, or
    chance."""
    trained_seed: OptionalCount = None
    """Which seed of the run plays. Default: the first."""
    out: OutputFile = Path("replay.html")
    """The page to write; a name that ends in .gif or .mp4 gives a movie of the first episode (extra
    `dgmarl[viz]`)."""
    set: Options = ()
    """An option of the environment; may be given several times."""

    def run(self) -> int:
        if self.set and Path(self.what).is_dir():
            raise UsageError(
                f"--set is given, but the run {self.what} has its own environment: leave it out, "
                "or name an environment."
            )
        from dgmarl.report.movie import SUFFIXES, require_movies, write_movie
        from dgmarl.report.replay_page import replay_page

        if self.out.suffix in SUFFIXES:
            require_movies(self.out)
        with status(f"playing {counted(self.episodes, 'episode')} of {self.what}"):
            replay = self._record()
            if self.out.suffix in SUFFIXES:
                write_movie(replay.episodes[0].frames, self.out)
            else:
                write_atomic(self.out, replay_page(replay))
        print(f"Open {self.out.absolute().as_uri()}")
        return 0

    def _record(self) -> "Replay":
        """Play, and keep every episode that was asked for."""
        import jax

        from dgmarl import api
        from dgmarl.envs.registry import make_env
        from dgmarl.rollout import act_randomly, record_episodes
        from dgmarl.runs.replays import UNLIMITED, make_replay

        key = jax.random.key(self.seed)
        if Path(self.what).is_dir():
            run = api.load(
                self.what,
                self.trained_seed,
                "best" if self.policy == "best" else "last",
                trust=self.trust,
            )
            if self.policy != "random":
                return run.replay(key, self.episodes, self.policy, UNLIMITED)
            env = run.env
        else:
            env = make_env(self.what, **parse_assignments(self.set))
            refuse_broken(env, self.what)
        recording = record_episodes(env, act_randomly, key, self.episodes)
        return make_replay(env, recording, "random", most_bytes=UNLIMITED)


@dataclass(frozen=True)
class Graph(Trusting):
    """Write a page that sets a run's graph against the oracle's and the interventional one, on
    replayed episodes."""

    run_folder: RunPath
    """The folder that `dgmarl train` wrote; its policy after the last step plays."""
    episodes: int = 3
    """How many episodes to record."""
    seed: int = 0
    """Seed of the play; the same seed gives the same page."""
    trained_seed: OptionalCount = None
    """Which seed of the run plays. Default: the first."""
    out: OutputFile = Path("graph.html")
    """The page to write."""

    def run(self) -> int:
        import jax

        from dgmarl import api
        from dgmarl.report.graph_page import graph_page
        from dgmarl.report.results import run_or_reason
        from dgmarl.runs.graphs import record_graphs

        with status(f"playing {counted(self.episodes, 'episode')} of {self.run_folder}"):
            run = api.load(self.run_folder, self.trained_seed, trust=self.trust)
            seed = run.config.seed if self.trained_seed is None else self.trained_seed
            compared = record_graphs(
                run, jax.random.key(self.seed), self.episodes, f"{run.config.method} (seed {seed})"
            )
            write_atomic(self.out, graph_page(compared, run_or_reason(self.run_folder)))
        print(f"Open {self.out.absolute().as_uri()}")
        return 0


@dataclass(frozen=True)
class Export(Trusting):
    """Write the policy of a run as a file that is used without dgmarl: FILE.stablehlo for
    jax.export, or FILE.py and FILE.npz for NumPy alone."""

    run_folder: RunPath
    """The folder that `dgmarl train` wrote."""
    out: OutputFile
    """The file to write; its ending chooses the form."""
    trained_seed: OptionalCount = None
    """Which seed's policy to write. Default: the first."""
    which: Literal["last", "best"] = "last"
    """The policy after the last step, or the best at an evaluation."""
    greedy: bool = True
    """The best actions; --no-greedy samples (.stablehlo)."""

    def run(self) -> int:
        from dgmarl import api
        from dgmarl.runs.export import check_export

        check_export(self.out)
        run = api.load(self.run_folder, self.trained_seed, self.which, trust=self.trust)
        for path in run.export(self.out, greedy=self.greedy):
            print(path)
        return 0
