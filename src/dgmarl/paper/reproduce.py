"""Plan the runs of the paper's figures and draw the figures. `dgmarl reproduce` writes

results/<benchmark>/<scenario>__<label>.json   finished runs, as published
runs/<benchmark>/<scenario>__<label>/          run folders, from which interrupted runs resume
figures/<figure>-*.svg, .png                   the figures
<figure>.md                                    their tables
index.html, or FIGURE.html for a single one    one page of all figures and tables
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from dgmarl.errors import UsageError
from dgmarl.files import write_atomic
from dgmarl.paper.paper_figures import FIGURES, PaperFigure
from dgmarl.paper.tables import NOTES, draw, final_table, iqm_table, scope, size, table_page
from dgmarl.paper.training_plan import make_plan
from dgmarl.report.aggregate import over_scenarios
from dgmarl.report.figures import inline_svg, save
from dgmarl.report.html import render
from dgmarl.report.results import Result, read_result
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
    """Write the plots and a page of tables of each figure with results; last, a page with all of
    them, named after a single figure so that it does not replace index.html."""
    figures = list(figures)
    written, sections = list[Path](), list[dict[str, Any]]()
    for figure in figures:
        if chosen := figure.chosen(results):
            drawn = draw(chosen)
            for kind, picture in drawn.items():
                written += save(picture, out / "figures" / f"{figure.name}-{kind}")
            pictures = [f"figures/{figure.name}-{kind}.svg" for kind in drawn]
            page = table_page(figure, chosen, pictures)
            written.append(write_atomic(out / f"{figure.name}.md", page))
            sections.append(_section(figure, chosen, drawn))
    if not written:
        raise UsageError(
            "There is no result of these figures yet: train some runs, or give results with --from."
        )
    page = render("figures_page.html", title="The paper's figures", notes=NOTES, figures=sections)
    name = figures[0].name if len(figures) == 1 else "index"
    return [*written, write_atomic(out / f"{name}.html", page)]


def _section(
    figure: PaperFigure, chosen: Sequence[Result], drawn: Mapping[str, Figure]
) -> dict[str, Any]:
    """A figure's part of the page."""
    together = over_scenarios(chosen)
    return {
        "name": figure.name,
        "about": figure.about,
        "choices": figure.choices,
        "pictures": [Markup(inline_svg(picture)) for picture in drawn.values()],
        "final": final_table(chosen),
        "size": size(chosen),
        "scope": scope(together),
        "iqm": None if together.reason else iqm_table(together),
    }


def results_of(plan: Plan) -> list[Result]:
    """Results of the finished runs."""
    return [read_result(run.result_file) for run in plan.runs if run.state == "done"]
