"""The commands about environments: `envs`, `check-env` and `new-env`."""

import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import tyro

from dgmarl.cli.common import EnvId, Options, Output, Trust, counted
from dgmarl.cli.guard import EXIT_USAGE
from dgmarl.config.yaml import parse_assignments
from dgmarl.errors import UsageError
from dgmarl.files import write_atomic
from dgmarl.trust import remember


@dataclass(frozen=True)
class Envs:
    """List the environments, their sizes and the syntax of their ids."""

    def run(self) -> int:
        from rich.console import Console
        from rich.table import Table

        from dgmarl.envs.adapters import ADAPTERS
        from dgmarl.envs.registry import FAMILIES, make_env

        table = Table(
            title="Environments by family, with the syntax of ids; or file.py:Class, module:Class",
            title_justify="left",
            caption="From other libraries: " + ", ".join(f"{name}:..." for name in ADAPTERS),
            caption_justify="left",
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
                names = ("n_agents", "n_actions", "obs_size", "state_size", "horizon")
                sizes = (str(getattr(env.spec, name)) for name in names)
                oracle = "yes" if env.offers("oracle_graph") else "no"
                table.add_row(f"  {example}", *sizes, oracle)
        Console(width=None if sys.stdout.isatty() else 140).print(table)
        return 0


@dataclass(frozen=True)
class CheckEnv:
    """Check an environment against the environment contract and report every violation."""

    env: EnvId
    """Environment id, module:Class or file.py:Class."""
    seed: int = 0
    """Random seed of the episodes."""
    set: Options = ()
    """Option of the environment."""
    trust: Trust = False
    """Execute the environment even if it comes from --config rather than the command line."""

    def run(self) -> int:
        """Print the findings; exit code 2 if the contract is violated."""
        from dgmarl.envs.checker import check_env
        from dgmarl.envs.registry import make_env
        from dgmarl.graphs.check_oracle import check_oracle

        env = make_env(self.env, **parse_assignments(self.set))
        findings = check_env(env, self.seed)
        violations = [finding for finding in findings if finding.kind == "violation"]
        for finding in findings:
            print(
                f"{finding.kind}: {finding.sentence}",
                file=sys.stderr if finding.kind == "violation" else sys.stdout,
            )
        if violations:
            found = counted(len(violations), "violation")
            print(f"{self.env}: {found} of the contract", file=sys.stderr)
            return EXIT_USAGE
        # Interventions need an environment that satisfies the contract.
        for finding in check_oracle(env, self.seed):
            print(f"{finding.kind}: {finding.sentence}")
        remember(env=self.env)
        print(
            f"{self.env} satisfies the contract (shapes, dtypes, jit, vmap, determinism, finite "
            "values, masks, endings, horizon)."
        )
        return 0


@dataclass(frozen=True)
class NewEnv:
    """Write an example environment, a small traffic junction, to a new Python file."""

    file: tyro.conf.Positional[Annotated[Path, Output(), tyro.conf.arg(metavar="FILE.py")]]
    """File to write; an existing file is not overwritten."""

    def run(self) -> int:
        if self.file.suffix != ".py":
            raise UsageError(f"{self.file} must end in .py, for example my_env.py.")
        if self.file.exists():
            raise UsageError(f"{self.file} exists already: choose another name.")
        source = (files("dgmarl.envs") / "junction.py").read_text()
        write_atomic(self.file, source.replace("my_env.py", self.file.name))
        print(f"{self.file} contains a traffic junction. Change it, then:")
        print(f"  dgmarl check-env {self.file}:Junction")
        print(f"  dgmarl train {self.file}:Junction --method mappo-dg --graph oracle --steps 1e5")
        return 0
