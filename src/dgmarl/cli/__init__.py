"""The command line. Every command is a frozen dataclass whose fields are its options; nothing heavy
is imported before it runs.

Every command also takes `--config FILE` (a YAML file with values for its options; options on the
command line win) and `--save-config FILE` (write the resolved options, to be given to `--config`
later)."""

import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import tyro

from dgmarl import __version__
from dgmarl.config.yaml import (
    build,
    convert,
    dotted,
    parse_assignments,
    read_yaml,
    suggest,
    write_yaml,
)
from dgmarl.errors import RunError, UsageError
from dgmarl.files import refuse_unwritable, write_atomic

if TYPE_CHECKING:
    from dgmarl.envs.base import Environment
    from dgmarl.rollout import Recording

EXIT_FAILED = 1
EXIT_USAGE = 2

EnvId = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
RunPath = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
Options = tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")]]


class Command(Protocol):
    """A dataclass of options that can be run."""

    def run(self) -> int:
        """Do the work and return the exit code."""
        ...


@dataclass(frozen=True)
class Envs:
    """List the environments, their sizes and how to write their ids."""

    def run(self) -> int:
        """Print one table, a row per example id."""
        from rich.console import Console
        from rich.table import Table

        from dgmarl.envs.registry import FAMILIES, make_env

        table = Table(
            title="Environments (any id of the grammar works, and file.py:Class or module:Class)",
            title_justify="left",
        )
        for column in ("id", "agents", "actions", "obs", "state", "horizon", "oracle graph"):
            table.add_column(
                column, justify="left" if column in ("id", "oracle graph") else "right"
            )
        for name, family in FAMILIES.items():
            table.add_section()
            table.add_row(f"[bold]{name}/[/bold]{family.grammar.replace('[', chr(92) + '[')}")
            table.add_row(f"[italic]{family.about}[/italic]")
            for example in family.examples:
                env = make_env(example)
                spec = env.spec
                sizes = (
                    spec.n_agents,
                    spec.n_actions,
                    spec.obs_size,
                    spec.state_size,
                    spec.horizon,
                )
                table.add_row(
                    f"  {example}", *map(str, sizes), "yes" if env.offers("oracle_graph") else "no"
                )
        Console(width=None if sys.stdout.isatty() else 140).print(table)
        return 0


@dataclass(frozen=True)
class CheckEnv:
    """Run an environment (an id, module:Class or file.py:Class) through the contract and name each
    violation."""

    env: EnvId
    """Environment id, module:Class or file.py:Class."""
    seed: int = 0
    """Seed of the random play."""
    set: Options = ()
    """An option of the environment; may be given several times."""

    def run(self) -> int:
        """Print the findings; exit code 2 if the contract is violated."""
        from dgmarl.envs.checker import check_env
        from dgmarl.envs.registry import make_env

        findings = check_env(make_env(self.env, **parse_assignments(self.set)), self.seed)
        violations = [finding for finding in findings if finding.kind == "violation"]
        for finding in findings:
            print(
                f"{finding.kind}: {finding.sentence}",
                file=sys.stderr if finding.kind == "violation" else sys.stdout,
            )
        if violations:
            print(
                f"{self.env}: the contract is violated in {len(violations)} place(s).",
                file=sys.stderr,
            )
            return EXIT_USAGE
        print(
            f"{self.env}: the contract holds (shapes, dtypes, jit, vmap, determinism, finite "
            "values, masks, endings, horizon)."
        )
        return 0


Count = Annotated[
    int,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda texts: convert(
            texts[0], int, "the number"
        ),  # so that 1e6 is a number of steps
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


@dataclass(frozen=True)
class Train:
    """Train a method on an environment, all seeds side by side, into a run folder that can be
    resumed, watched and loaded."""

    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]] = ""
    """Environment id, module:Class or file.py:Class (needed unless --resume or --config names
    one)."""
    method: str = "ippo-dg"
    """ippo or mappo, then -local, -global or -dg; or iql, vdn, qmix, qplex."""
    graph: str = "oracle"
    """For -dg: learned, oracle, interventional[:H], self, complete, random:P, fixed:FILE or
    file.py:Source."""
    preset: Literal["tuned", "paper", "fast"] = "tuned"
    """Numbers that you do not set: the paper's; with what we found better for -dg; or those with
    128 environments (PPO)."""
    seeds: Count = 5
    """How many seeds."""
    seed: Count = 0
    """The first seed."""
    steps: Count = 1_000_000
    """Environment steps per seed; may be written 1e6."""
    out: Folder = None
    """The run folder to write; by default runs/ENV__METHOD."""
    set: Options = ()
    """Any other field of the configuration, such as learner.hidden=64, n_envs=32 or
    env_options.noise=0; several times."""
    resume: Folder = None
    """Continue this run folder to the identical result, with its own configuration."""
    init_from: Folder = None
    """Start from the policy and critic of another run's first seed."""
    keep_every: int = 0
    """Keep every K-th checkpoint for good; 0: only the latest two."""
    deterministic: bool = False
    """Bit-identical runs on a GPU too, at the price of slower reductions; a CPU always is."""
    quiet: bool = False
    """No progress display."""
    base: tyro.conf.Suppress[dict[str, Any] | None] = None
    """The configuration file, where one was given."""

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> "Train":
        """From a configuration file: a run's config.yaml, or any part of one."""
        own = {
            name: values[name]
            for name in ("env", "method", "graph", "seeds", "seed", "steps", "deterministic")
            if name in values
        }
        return replace(build(cls, own), base=values)

    def run(self) -> int:
        """Train, showing progress; Ctrl-C stops at the next evaluation with a checkpoint."""
        from dgmarl import api
        from dgmarl.envs.registry import make_env
        from dgmarl.track.terminal import TrainingDisplay

        config = self.resolved()
        if config.deterministic:  # read when the first computation starts, which is below
            os.environ["XLA_FLAGS"] = (
                f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true"
            )
        out = self.resume or self.out or Path("runs") / f"{_file_name(config.env)}__{config.method}"
        refuse_unwritable(out / "config.yaml")
        if ":" in config.env:
            _refuse_broken(make_env(config.env, **config.env_options), config.env)
        label = f"{config.env} {config.method}, {_counted(config.seeds, 'seed')}"
        with TrainingDisplay(label, config.steps, self.quiet) as display:
            if self.resume:
                result = api.resume(out, display, keep_every=self.keep_every)
            else:
                params = api.load(self.init_from).params if self.init_from else None
                result = api.train_config(config, out, params, display, keep_every=self.keep_every)
        return _summarise(result, out)

    def _config(self):
        from dgmarl.config.presets import MIXERS, resolve

        if not self.env:
            raise UsageError(
                "train needs an environment, for example `dgmarl train star-spread/5`, or "
                "--resume RUN."
            )
        given = {
            name: getattr(self, name)
            for name in ("graph", "seeds", "seed", "steps", "deterministic")
        }
        if not self.method.endswith("-dg") and self.graph != (self.base or {}).get(
            "graph", "oracle"
        ):
            raise UsageError(
                f"--graph is {self.graph}, but {self.method} uses no graph: leave it out, or "
                "choose ippo-dg or mappo-dg."
            )
        from_file = dotted(self.base or {}, leave_out=("env", "method", *given))
        before = (self.base or {}).get("method", self.method)
        if before != self.method:
            # What the file's own method implied does not hold for another one; another learner has
            # other fields altogether.
            same_learner = (before in MIXERS) == (self.method in MIXERS)
            void = (
                ("learner.credit", "learner.critic", "learner.mixer")
                if same_learner
                else ("learner.",)
            )
            from_file = {
                name: value for name, value in from_file.items() if not name.startswith(void)
            }
        return resolve(
            self.env,
            self.method,
            {**from_file, **parse_assignments(self.set)},
            self.preset,
            **given,
        )

    def resolved(self):
        """What --save-config writes: the run's whole configuration, the same as its config.yaml."""
        from dgmarl.runs.folder import RunFolder

        if self.keep_every < 0:
            raise UsageError(
                f"--keep-every is {self.keep_every}, but must be 0 (keep the latest two) or more."
            )
        if self.resume is None:
            return self._config()
        given = replace(self, resume=None, keep_every=0, quiet=False)
        if given != Train():
            raise UsageError(
                "--resume continues a run with its own configuration: give no other option but "
                "--keep-every and --quiet."
            )
        return RunFolder(self.resume).config()


def _summarise(result, out: Path) -> int:
    """Say what came out, where it is, and what to do next."""
    from dgmarl.report.statistics import mean_interval

    final = mean_interval(result.returns[:, -1].mean(axis=-1))
    interval = "" if final.low != final.low else f" [{final.low:.3f}, {final.high:.3f}]"
    speed, compile_s = result.timing["steps_per_s"], result.timing["compile_s"]
    seeds = _counted(len(result.steps), "seed")
    print(
        f"{out}: return {final.estimate:.3f}{interval} after {result.steps[:, -1].min():,} steps, "
        f"{seeds}"
    )
    print(
        f"{speed:,.0f} environment steps/s in all; {compile_s:.0f} s compiling, "
        f"{result.timing['train_s']:.0f} s training"
    )
    if result.interrupted:
        print(f"Stopped. Go on with: dgmarl train --resume {out}")
        return 130
    print(f"Watch it with: dgmarl watch {out}")
    return 0


@dataclass(frozen=True)
class Evaluate:
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
        """Print one line per seed and the mean with its interval."""
        if self.episodes < 1:
            raise UsageError(
                f"--episodes is {self.episodes}, but at least 1 episode must be played."
            )
        from dgmarl import api
        from dgmarl.report.statistics import mean_interval
        from dgmarl.runs.folder import RunFolder

        returns = api.evaluate(self.run_folder, self.episodes, self.seed, self.which)
        first, means = RunFolder(self.run_folder).config().seed, returns.mean(axis=1)
        overall = mean_interval(means)
        if self.json:
            seeds = {str(first + k): float(mean) for k, mean in enumerate(means)}
            mean = {
                name: None if value != value else value for name, value in overall._asdict().items()
            }
            print(
                json_text(
                    {"episodes": self.episodes, "which": self.which, "seeds": seeds, "mean": mean}
                )
            )
            return 0
        for k, (mean, spread) in enumerate(zip(means, returns.std(axis=1), strict=True)):
            print(
                f"seed {first + k}: return {mean:.3f} (standard deviation over episodes "
                f"{spread:.3f})"
            )
        interval = (
            "" if len(means) < 2 else f", 95 % interval [{overall.low:.3f}, {overall.high:.3f}]"
        )
        print(f"mean over {_counted(len(means), 'seed')}: {overall.estimate:.3f}{interval}")
        return 0


@dataclass(frozen=True)
class Table:
    """Tabulate results: final returns with intervals per scenario, and over scenarios where scores
    share a scale."""

    paths: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH")]]
    """Folders with runs or files SCENARIO__METHOD.json at any depth, such as results or
    results/lbf; or marl-eval files."""
    json: bool = False
    """Print JSON."""
    marl_eval: Path | None = None
    """Also write the curves to this file, in the format of marl-eval."""

    def run(self) -> int:
        """Print two tables per benchmark, or one where scores cannot be pooled."""
        from rich.console import Console

        from dgmarl.report.marl_eval import write_marl_eval
        from dgmarl.report.results import gather
        from dgmarl.report.table import as_json, tables

        if not self.paths:
            raise UsageError("table needs a path, for example `dgmarl table results/lbf`.")
        results = gather(self.paths)
        if self.marl_eval is not None:
            refuse_unwritable(self.marl_eval)
            write_marl_eval(results, self.marl_eval)
        if self.json:
            print(json_text(as_json(results)))
            return 0
        # In a file or a pipe nothing limits a line, so that every row stays one line.
        Console(width=None if sys.stdout.isatty() else 1000).print(*tables(results), sep="\n")
        return 0


@dataclass(frozen=True)
class Report:
    """Write one page of runs: table, curves, aggregates, timing, what differs, graphs, replays that
    show where credit goes."""

    paths: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN")]]
    """Run folders, folders of them, or published results (SCENARIO__METHOD.json, marl-eval
    files)."""
    out: Path = Path("report.html")
    """The page to write."""
    title: str = "Report"
    """Its heading."""

    def run(self) -> int:
        """Read, play, draw, write, and say where the page is."""
        if not self.paths:
            raise UsageError(
                "report needs a run, for example `dgmarl report runs/mine --out page.html`."
            )
        refuse_unwritable(self.out)
        from dgmarl.report.results import gather
        from dgmarl.report.run_page import run_page

        results = gather(self.paths)
        with _status(f"playing and drawing {_counted(len(results), 'result')}"):
            write_atomic(self.out, run_page(results, self.title))
        print(f"Open {self.out.absolute().as_uri()}")
        return 0


@dataclass(frozen=True)
class Watch:
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
    trained_seed: int | None = None
    """Which seed of the run plays. Default: the first."""
    out: Path = Path("replay.html")
    """The page to write; a name that ends in .gif or .mp4 gives a movie of the first episode (extra
    `dgmarl[viz]`)."""
    set: Options = ()
    """An option of the environment; may be given several times."""

    def run(self) -> int:
        """Record, draw, write, and say where the page is."""
        if self.episodes < 1:
            raise UsageError(
                f"--episodes is {self.episodes}, but at least 1 episode must be played."
            )
        refuse_unwritable(self.out)
        from dgmarl.report.movie import SUFFIXES, write_movie
        from dgmarl.report.replay_page import replay_data, replay_page

        with _status(f"playing {self.episodes} episodes of {self.what}"):
            if self.out.suffix in SUFFIXES:
                write_movie(replay_data(*self._record())["episodes"][0]["frames"], self.out)
            else:
                write_atomic(self.out, replay_page(*self._record()))
        print(f"Open {self.out.absolute().as_uri()}")
        return 0

    def _record(self) -> "tuple[Environment, Recording, str, str]":
        """Environment, episodes, who plays, and how it was credited."""
        import jax

        from dgmarl import api
        from dgmarl.envs.registry import make_env
        from dgmarl.rollout import act_randomly, record_episodes

        key = jax.random.key(self.seed)
        if Path(self.what).is_dir():
            run = api.load(
                self.what, self.trained_seed, "best" if self.policy == "best" else "last"
            )
            if self.policy != "random":
                return (
                    run.env,
                    run.record(key, self.episodes),
                    f"{run.config.method} ({self.policy})",
                    run.credit_note(),
                )
            return run.env, record_episodes(run.env, act_randomly, key, self.episodes), "random", ""
        env = make_env(self.what, **parse_assignments(self.set))
        _refuse_broken(env, self.what)
        return env, record_episodes(env, act_randomly, key, self.episodes), "random", ""


@dataclass(frozen=True)
class Graph:
    """Write a page that sets a run's graph against the oracle's and the interventional one, on
    replayed episodes."""

    run_folder: RunPath
    """The folder that `dgmarl train` wrote; its policy after the last step plays."""
    episodes: int = 3
    """How many episodes to record."""
    seed: int = 0
    """Seed of the play; the same seed gives the same page."""
    trained_seed: int | None = None
    """Which seed of the run plays. Default: the first."""
    out: Path = Path("graph.html")
    """The page to write."""

    def run(self) -> int:
        """Record, compare, write, and say where the page is."""
        if self.episodes < 1:
            raise UsageError(
                f"--episodes is {self.episodes}, but at least 1 episode must be played."
            )
        refuse_unwritable(self.out)
        from dgmarl.report.graph_page import graph_page

        with _status(f"playing {_counted(self.episodes, 'episode')} of {self.run_folder}"):
            write_atomic(
                self.out, graph_page(self.run_folder, self.episodes, self.seed, self.trained_seed)
            )
        print(f"Open {self.out.absolute().as_uri()}")
        return 0


@dataclass(frozen=True)
class Reproduce:
    """Train the cells of a figure of the paper, those that are not done, and draw it; or draw it
    from published results."""

    figure: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FIGURE|all")]]
    """motivation, random-graphs, mpe, lbf, smaclite, or all."""
    out: Path = Path("reproduction")
    """The folder for results, run folders, figures, tables and index.html."""
    seeds: Count = 10
    """Seeds per cell."""
    steps: Count | None = None
    """Environment steps per seed. Default: the paper's."""
    workers: Count = 1
    """Programs at a time; more than one uses idle cores while others compile."""
    lanes: Count = 8
    """Cells of equal shape in one program."""
    dry_run: bool = False
    """Only list the cells and estimate the time on this machine, from a short trial."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from", metavar="DIR")] = None
    """Train nothing: draw from the published results below this folder, such as results."""

    def run(self) -> int:
        """Plan, train with one bar for the whole grid, draw, and say where it is."""
        from dgmarl.paper import reproduce
        from dgmarl.report.results import read_results

        for name in ("seeds", "workers", "lanes"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} is {getattr(self, name)}, but must be at least 1.")
        if self.dry_run and self.from_ is not None:
            raise UsageError(
                "--dry-run plans training and --from trains nothing: give one of them."
            )
        figures = reproduce.figures_named(self.figure)
        refuse_unwritable(self.out / "index.html")
        if self.from_ is not None:
            results = read_results(self.from_)
        else:
            grid = reproduce.make_grid(figures, self.out, self.seeds, self.steps)
            if self.dry_run:
                return _print_plan(grid)
            _run_grid(grid, self.out, self.workers, self.lanes)
            results = reproduce.results_of(grid, self.out)
        with _status("drawing"):
            written = reproduce.write_figures(figures, results, self.out)
            page = reproduce.write_page(figures, results, self.out)
        print(f"{_counted(len(written), 'file')} of figures and tables in {self.out}")
        print(f"Open {page.absolute().as_uri()}")
        return 0


def _print_plan(grid) -> int:
    """A line per cell, then the sum and how long it may take here."""
    from dgmarl.paper.reproduce import estimate_seconds

    for job in grid.jobs:
        cell, config = job.cell, job.cell.config
        print(
            f"{job.state:<8} {cell.benchmark}/{cell.scenario} {cell.method}: {config.seeds} x "
            f"{config.steps:,} steps"
        )
    for plan, reason in grid.not_runnable.items():
        print(f"cannot   {plan.benchmark}/{plan.scenario} {plan.label}: {reason}")
    left = [job for job in grid.jobs if job.state != "done"]
    steps = sum(job.steps for job in left)
    with _status("a short trial of each benchmark"):
        hours = estimate_seconds(grid) / 3600
    time = f"{hours:.1f} hours" if hours > 1 else f"{60 * hours:.0f} minutes"
    print(
        f"{_counted(len(left), 'cell')} to run, {steps:,} environment steps: about {time} on this "
        "machine, one at a time."
    )
    return 0


def _run_grid(grid, out: Path, workers: int, lanes: int) -> None:
    """Train with one bar for the whole grid, in environment steps of all cells."""
    from rich.console import Console
    from rich.progress import Progress

    from dgmarl.paper.reproduce import run

    console = Console(stderr=True)
    for plan, reason in grid.not_runnable.items():
        console.print(
            f"left out: {plan.benchmark}/{plan.scenario} {plan.label}: {reason}", markup=False
        )
    had = {job: job.steps for job in grid.jobs if job.state == "done"}
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(
            f"{len(had)} of {_counted(len(grid.jobs), 'cell')}",
            total=sum(job.steps for job in grid.jobs),
        )

        def watch(job, steps: int) -> None:
            had[job] = steps
            bar.update(task, completed=sum(had.values()))

        def finished(job, words: str) -> None:
            watch(job, job.steps)
            bar.update(
                task,
                description=f"{sum(had[one] >= one.steps for one in had)} of {_counted(len(grid.jobs), 'cell')}",
            )
            console.print(
                f"{job.cell.scenario} {job.cell.method}: {words}", markup=False, highlight=False
            )

        run(grid, out, watch, finished, workers, lanes)


@dataclass(frozen=True)
class Demo:
    """Train local, global and dependence-graph credit on two small tasks and write a page with
    curves and a replay."""

    out: Path = Path("demo")
    """The folder for index.html."""
    seeds: int = 3
    """Seeds per kind of credit."""
    scale: float = 1.0
    """Train for this many times the usual steps."""

    def run(self) -> int:
        """Train with a progress bar per run, write the page, say where it is."""
        if self.seeds < 1 or self.scale <= 0:
            raise UsageError(
                f"--seeds is {self.seeds} and --scale {self.scale:g}, but both must be above 0."
            )
        refuse_unwritable(self.out / "index.html")
        from rich.console import Console
        from rich.progress import Progress

        from dgmarl.cli.demo_page import run_demo

        console = Console(stderr=True)
        with Progress(console=console, disable=not console.is_terminal) as bar:

            def watch(label: str, steps: int):
                task = bar.add_task(label, total=steps)
                return lambda progress: bar.update(
                    task, completed=min(int(progress.steps.min()), steps)
                )

            path = run_demo(self.out, self.seeds, self.scale, watch)
        print(f"Open {path.absolute().as_uri()}")
        return 0


@dataclass(frozen=True)
class Theory:
    """Check the paper's claims by exact computation on random networked MDPs; a page and a table of
    what holds."""

    out: Path = Path("theory")
    """The folder for theory.html and theory.json."""
    seed: int = 0
    """Seed of the random MDPs."""
    quick: bool = False
    """Fewer and smaller MDPs: seconds instead of a minute or two."""

    def run(self) -> int:
        """Run all checks with a progress bar and print the verdicts."""
        refuse_unwritable(self.out / "theory.html")
        from rich.console import Console
        from rich.progress import Progress

        from dgmarl.paper.theory.laboratory import run_laboratory

        console = Console(stderr=True)
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("theory", total=1.0)
            show = lambda what, share: bar.update(task, description=what, completed=share)  # noqa: E731
            claims = run_laboratory(self.out, seed=self.seed, quick=self.quick, progress=show)
        for claim in claims:
            print(f"{claim.holds:<11}  {claim.name}")
        print(f"Open {(self.out / 'theory.html').absolute().as_uri()}")
        return 0


@dataclass(frozen=True)
class Doctor:
    """Say what this installation has: versions, devices, optional parts."""

    def run(self) -> int:
        """Print one line per fact."""
        import importlib.metadata
        import platform
        import shutil

        import jax

        print(
            f"dgmarl {__version__}, Python {platform.python_version()}, {platform.machine()}, "
            f"{os.cpu_count()} cores"
        )
        for package in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"):
            print(f"{package} {importlib.metadata.version(package)}")
        print(f"devices: {', '.join(str(device) for device in jax.devices())}")
        if jax.default_backend() == "cpu":
            print(
                "no accelerator is in use; with an NVIDIA GPU, `pip install 'dgmarl[cuda]'` "
                "brings the GPU build of JAX"
            )
        print(f"chromium (for page tests): {'found' if shutil.which('chromium') else 'not found'}")
        return 0


COMMANDS: dict[str, type[Command]] = {
    "train": Train,
    "evaluate": Evaluate,
    "table": Table,
    "report": Report,
    "watch": Watch,
    "graph": Graph,
    "reproduce": Reproduce,
    "demo": Demo,
    "theory": Theory,
    "envs": Envs,
    "check-env": CheckEnv,
    "doctor": Doctor,
}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `dgmarl`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(arguments)
    except UsageError as error:
        print(f"dgmarl: {error}", file=sys.stderr)
        code = EXIT_USAGE
    except RunError as error:
        print(f"dgmarl: {error}", file=sys.stderr)
        code = EXIT_FAILED
    except KeyboardInterrupt:
        print("dgmarl: stopped", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise UsageError(f"{name!r} is not a command; {suggest(name, COMMANDS)}")
    command = COMMANDS[name]
    rest, config = _take_option(rest, "--config")
    rest, save = _take_option(rest, "--save-config")
    parse: Any = tyro.cli
    if config is not None:
        from_values = getattr(command, "from_values", partial(build, command))
        parse = partial(parse, default=from_values(read_yaml(config)))
    parsed = parse(command, prog=f"dgmarl {name}", args=rest, description=_describe(command))
    if save is not None:
        write_yaml(save, getattr(parsed, "resolved", lambda: parsed)())
    if command in (Train, Reproduce, Demo, Doctor):
        from dgmarl.device import use_all_cores

        use_all_cores()
    return parsed.run()


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        f"  {name:<{width}}  {(command.__doc__ or '').splitlines()[0]}"
        for name, command in COMMANDS.items()
    ]
    return "\n".join(
        [
            "dgmarl: multi-agent reinforcement learning with credit along dependence graphs",
            "",
            "usage: dgmarl COMMAND [options]      (dgmarl COMMAND --help tells its options)",
            "",
            *lines,
            "",
            (
                "Every command takes --config FILE.yaml (values for its options) and --save-config "
                "FILE.yaml (writes the resolved"
            ),
            "options, to be used with --config again).",
        ]
    )


def _describe(command: type[Command]) -> str:
    return f"{command.__doc__} Also: --config FILE.yaml reads options from a file, --save-config FILE.yaml writes them."


def _take_option(arguments: list[str], option: str) -> tuple[list[str], str | None]:
    """Remove `--option VALUE` or `--option=VALUE` from the arguments."""
    for k, argument in enumerate(arguments):
        if argument == option:
            if k + 1 == len(arguments):
                raise UsageError(f"{option} needs the path of a YAML file after it.")
            return arguments[:k] + arguments[k + 2 :], arguments[k + 1]
        if argument.startswith(f"{option}="):
            return arguments[:k] + arguments[k + 1 :], argument.partition("=")[2]
    return arguments, None


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def _file_name(env_id: str) -> str:
    """`star-spread_5` for star-spread/5, `Relay` for path/to/relay.py:Relay."""
    return env_id.rpartition(":")[2] if ":" in env_id else env_id.replace("/", "_")


def _refuse_broken(env, name: str) -> None:
    """An environment that breaks the contract is told so before anything is compiled for it."""
    from dgmarl.envs.checker import check_env

    for finding in check_env(env):
        if finding.kind == "violation":
            raise UsageError(f"{name} breaks the environment contract: {finding.sentence}")


def _status(message: str):
    """A spinner on the terminal; silent elsewhere."""
    from rich.console import Console

    return Console(stderr=True).status(message)
