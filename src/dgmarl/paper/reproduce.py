"""Plan the runs of the paper's figures and draw the figures. `dgmarl reproduce` writes

results/<benchmark>/<scenario>__<label>.json   finished runs, as published
runs/<benchmark>/<scenario>__<label>/          run folders, from which interrupted runs resume
figures/<figure>-*.svg, .png                   the figures
<figure>.md                                    their tables
index.html                                     one page of all results
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dgmarl.errors import UsageError
from dgmarl.files import write_atomic
from dgmarl.paper.paper_figures import FIGURES, PaperFigure
from dgmarl.paper.tables import draw, table_page
from dgmarl.paper.training_plan import make_plan
from dgmarl.report.figures import save
from dgmarl.report.results import Result, read_result
from dgmarl.report.run_page import run_page
from dgmarl.runs.folder import RunFolder
from dgmarl.sweeps.plan import Plan
from dgmarl.sweeps.planned import PlannedRun

IDENTITY = ("env", "method", "graph", "seeds", "seed", "steps")
"""Configuration fields in which a result must agree with a planned run to be used for it."""


def figures_named(name: str) -> list[PaperFigure]:
    """One figure, or all of them for `all`."""
    if name != "all" and name not in FIGURES:
        raise UsageError(
            f"{name!r} is not a figure of the paper; allowed are all, {', '.join(FIGURES)}."
        )
    return list(FIGURES.values()) if name == "all" else [FIGURES[name]]


def plan_figures(
    figures: Iterable[PaperFigure], out: Path, seeds: int | None = None, steps: int | None = None
) -> Plan:
    """The runs of these figures with outputs below `out`; results and run folders there with other
    options are refused."""
    runs = [run for figure in figures for run in figure.runs]
    plan = make_plan(runs, out / "results", out / "runs", seeds, steps)
    for run in plan.runs:
        _refuse_other_options(run)
    return plan


def _refuse_other_options(run: PlannedRun) -> None:
    if run.result_file.is_file():
        path, found = run.result_file, read_result(run.result_file).facts["config"]
    elif run.state == "begun" and run.folder is not None:
        path, found = run.folder, vars(RunFolder(run.folder).config())
    else:
        return
    for name in IDENTITY:
        wanted = getattr(run.config, name)
        if found.get(name) != wanted:
            raise UsageError(
                f"{path} has {name} = {found.get(name)}, not {wanted}: give the same options, or "
                "another --out."
            )


def write_figures(
    figures: Iterable[PaperFigure], results: Sequence[Result], out: Path
) -> list[Path]:
    """Write the plots and a page of tables of each figure with results."""
    written: list[Path] = []
    for figure in figures:
        chosen = figure.chosen(results)
        if chosen:
            drawn = draw(chosen)
            for kind, picture in drawn.items():
                written += save(picture, out / "figures" / f"{figure.name}-{kind}")
            text = table_page(
                figure, chosen, [f"figures/{figure.name}-{kind}.svg" for kind in drawn]
            )
            written.append(write_atomic(out / f"{figure.name}.md", text))
    if not written:
        raise UsageError(
            "There is no result of these figures yet: train some runs, or give results with --from."
        )
    return written


def write_page(figures: Iterable[PaperFigure], results: Sequence[Result], out: Path) -> Path:
    """Write one page of all results of these figures."""
    chosen = {id(result): result for figure in figures for result in figure.chosen(results)}
    return write_atomic(out / "index.html", run_page(list(chosen.values()), "The paper's figures"))


def results_of(plan: Plan) -> list[Result]:
    """Results of the finished runs, with their run folders if they exist."""
    results = []
    for run in plan.runs:
        if run.state == "done":
            result = read_result(run.result_file)
            has_folder = run.folder is not None and (run.folder / "config.yaml").is_file()
            folder: dict[str, Any] = {"folder": run.folder} if has_folder else {}
            results.append(result._replace(facts={**result.facts, **folder}))
    return results
