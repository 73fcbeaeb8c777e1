"""The commands that read results: `table` and `report`."""

import sys
from dataclasses import dataclass
from json import dumps as json_text
from pathlib import Path
from typing import Annotated

import tyro

from dgmarl.cli.common import Output, PageFile, counted, left_out, status
from dgmarl.errors import UsageError
from dgmarl.files import write_atomic


@dataclass(frozen=True)
class Table:
    """Print a table of final returns with intervals, per scenario and, where scores share a scale,
    over all scenarios."""

    paths: tyro.conf.Positional[Annotated[tuple[Path, ...], left_out("PATH")]]
    """Folders with runs or SCENARIO__METHOD.json files at any depth, or marl-eval files."""
    best: bool = False
    """Sort each scenario by final return, highest first."""
    json: bool = False
    """Print JSON."""
    marl_eval: Annotated[Path | None, Output(), left_out("FILE")] = None
    """Also write the curves to this file in the marl-eval format."""

    def run(self) -> int:
        from rich.console import Console

        from dgmarl.report.marl_eval import write_marl_eval
        from dgmarl.report.results import gather, place
        from dgmarl.report.table import as_json, tables

        if not self.paths:
            raise UsageError("table needs a path, for example `dgmarl table results/lbf`.")
        results = gather(self.paths)
        if self.best:
            results.sort(key=lambda result: (place(result)[:-1], -result.final.mean()))
        if self.marl_eval is not None:
            write_marl_eval(results, self.marl_eval)
        if self.json:
            print(json_text(as_json(results)))
            return 0
        # Keep every row on one line in files and pipes.
        Console(width=None if sys.stdout.isatty() else 1000).print(*tables(results), sep="\n")
        return 0


@dataclass(frozen=True)
class Report:
    """Write a page about runs: table, curves, aggregates, timing, differences in configuration,
    graphs, and replays with credit."""

    paths: tyro.conf.Positional[Annotated[tuple[Path, ...], left_out("RUN")]]
    """Run folders, folders of them, SCENARIO__METHOD.json files or marl-eval files."""
    out: PageFile = Path("report.html")
    """Page to write."""
    title: str = "Report"
    """Heading of the page."""

    def run(self) -> int:
        if not self.paths:
            raise UsageError(
                "report needs a run, for example `dgmarl report runs/mine --out page.html`."
            )
        from dgmarl.report.results import gather
        from dgmarl.report.run_page import run_page

        results = gather(self.paths)
        with status(f"drawing {counted(len(results), 'result')}"):
            write_atomic(self.out, run_page(results, self.title))
        print(f"Open {self.out.absolute().as_uri()}")
        return 0
