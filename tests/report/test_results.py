"""Results from run folders and marl-eval files, whole and damaged."""

import json

import numpy as np
import pytest

from dgmarl.cli import main
from dgmarl.errors import UsageError
from dgmarl.report.aggregate import over_scenarios
from dgmarl.report.marl_eval import read_marl_eval, write_marl_eval
from dgmarl.report.results import gather, graph_tag, on_grid, read_run
from tests.report.fake_runs import rows, write_run


def test_a_run_folder_gives_its_curves_on_all_axes(tmp_path):
    result = read_run(write_run(tmp_path / "run", graph="random:0.3", finals=(0.3, 0.6, 0.9)))
    assert (result.benchmark, result.scenario, result.method) == (
        "lbf",
        "8x8-2p-2f",
        "ippo-dg-random0.3",
    )
    np.testing.assert_allclose(result.final, [0.3, 0.6, 0.9])
    np.testing.assert_array_equal(result.steps[0], [1000, 2000, 3000, 4000])
    np.testing.assert_allclose(result.facts["wall_s"][0], [0.5, 1, 1.5, 2])
    np.testing.assert_allclose(
        result.facts["episodes"][0], [20, 40, 60, 80]
    )  # 10 environments, 2 iterations each
    assert result.facts["notes"] == []


def test_windows_count_episodes_by_their_length(tmp_path):
    result = read_run(write_run(tmp_path / "run", overrides={"rollout_length": 20}))
    np.testing.assert_allclose(result.facts["episodes"][0], [100, 200, 300, 400])


@pytest.mark.parametrize("cut", [1, 30])
def test_a_line_that_a_crash_cut_costs_its_evaluation_only(tmp_path, cut):
    result = read_run(write_run(tmp_path / "run", cut=cut + 1))
    assert result.steps.shape == (2, 3)
    assert result.facts["notes"] == ["It has trained for 3,000 of 4,000 steps."]


def test_a_seed_that_was_done_earlier_repeats_its_last_evaluation(tmp_path):
    path = write_run(tmp_path / "run")
    lines = rows(0, [0.1, 0.2], 4000) + rows(1, [0.1, 0.2, 0.3, 0.4], 4000)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = read_run(path)
    np.testing.assert_allclose(result.returns, [[0.1, 0.2, 0.2, 0.2], [0.1, 0.2, 0.3, 0.4]])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no evaluation of all its seeds"),
        ('{"seed": 0', "no evaluation of all its seeds"),
        (json.dumps(rows(0, [0.1], 4000)[0]), "no evaluation of all its seeds"),
        ('{"seed": 0}\n', "line 1 lacks evaluation"),
        ("3\n", "line 1 is not a mapping"),
        ('{"seed": "a", "evaluation": []}\n', "line 1 has seed = 'a'"),
    ],
)
def test_runs_without_a_whole_evaluation_are_refused(tmp_path, content, words):
    path = write_run(tmp_path / "run")
    (path / "metrics.jsonl").write_text(content)
    with pytest.raises(UsageError, match=words):
        read_run(path)


def test_folders_of_runs_and_of_results_are_read_together(tmp_path):
    write_run(tmp_path / "mine" / "a")
    write_run(tmp_path / "mine" / "b")
    write_run(tmp_path / "mine" / "c", method="ippo-local")
    methods = [result.method for result in gather([tmp_path / "mine"])]
    assert methods == ["ippo-dg-oracle (a)", "ippo-dg-oracle (b)", "ippo-local"]
    assert [
        result.method for result in gather([tmp_path / "mine" / "a", tmp_path / "mine" / "a"])
    ] == ["ippo-dg-oracle"]


def test_a_run_that_has_only_begun_is_left_out_of_its_folder_with_a_warning(tmp_path):
    write_run(tmp_path / "mine" / "a")
    begun = write_run(tmp_path / "mine" / "b")
    (begun / "metrics.jsonl").write_text("")
    with pytest.warns(UserWarning, match="Left out: .*b holds no evaluation"):
        assert [result.method for result in gather([tmp_path / "mine"])] == ["ippo-dg-oracle"]


def test_marl_eval_files_come_back_as_they_went(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", env="lbf/10x10-3p-3f", finals=(0.1, 0.2, 0.3))
    ours = gather([tmp_path / "runs"])
    path = write_marl_eval(ours, tmp_path / "curves.json")
    for before, after in zip(ours, gather([path]), strict=True):
        assert before[:4] == after[:4]
        np.testing.assert_array_equal(before.steps, after.steps)
        np.testing.assert_array_equal(before.returns, after.returns)


def test_the_marl_eval_format_is_what_marl_eval_reads(tmp_path):
    """Names of levels and keys as its README gives them; the absolute metrics come last."""
    content = json.loads(
        write_marl_eval(gather([write_run(tmp_path / "run")]), tmp_path / "curves.json").read_text()
    )
    run = content["lbf"]["8x8-2p-2f"]["ippo-dg-oracle"]["seed_0"]
    assert list(run) == ["step_1", "step_2", "step_3", "step_4", "absolute_metrics"]
    assert run["step_2"] == {"step_count": 2000, "return": [pytest.approx(0.2 / 3)]}
    assert run["absolute_metrics"] == {"return": run["step_4"]["return"]}


def test_episodes_of_others_are_averaged(tmp_path):
    path = tmp_path / "theirs.json"
    steps = {"step_1": {"step_count": 10, "return": [1, 2, 6]}, "absolute_metrics": {"return": [9]}}
    path.write_text(json.dumps({"smax": {"3m": {"QMIX": {"seed_3": steps}}}}))
    (result,) = read_marl_eval(path)
    assert result.env == "smax/3m"
    np.testing.assert_allclose(result.returns, [[3]])


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"a": 1}',
        '{"lbf": {"t": {"m": {"seed_0": {"step_1": {"step_count": 1, "win_rate": [1]}}}}}}',
        '{"lbf": {"t": {"m": {"seed_0": {}}}}}',
        '{"lbf": {"t": {"m": {"seed_0": {"step_1": {"step_count": 1, "return": [1e999]}}}}}}',
    ],
)
def test_files_of_another_format_or_metric_are_refused(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="not in the marl-eval format"):
        gather([path])


def test_table_exports_marl_eval(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    with pytest.raises(SystemExit) as stop:
        main(["table", str(run), "--marl-eval", str(tmp_path / "out.json")])
    assert stop.value.code == 0
    assert "8x8-2p-2f" in capsys.readouterr().out
    assert read_marl_eval(tmp_path / "out.json")[0].method == "ippo-dg-oracle"


def test_only_what_compares_is_put_together(tmp_path):
    for k, (method, env) in enumerate(
        [
            ("ippo-dg", "lbf/8x8-2p-2f"),
            ("ippo-dg", "lbf/10x10-3p-3f"),
            ("ippo-local", "lbf/8x8-2p-2f"),
        ]
    ):
        write_run(tmp_path / str(k), method, env)
    together = over_scenarios(gather([tmp_path]))
    assert list(together.of_method) == ["ippo-dg-oracle"]
    assert together.left_out == {"ippo-local": ("10x10-3p-3f",)}
    assert together.runs("ippo-dg-oracle") == 4


def test_scenarios_that_most_methods_lack_are_left_out(tmp_path):
    for env in ("lbf/8x8-2p-2f", "lbf/10x10-3p-3f"):
        for method in ("ippo-dg", "ippo-local", "ippo-global"):
            write_run(tmp_path / f"{env.replace('/', '')}{method}", method, env)
    write_run(tmp_path / "more", "ippo-dg", "lbf/15x15-3p-4f")
    together = over_scenarios(gather([tmp_path]))
    assert together.scenarios == ("8x8-2p-2f", "10x10-3p-3f")
    assert len(together.of_method) == 3


def test_different_environments_or_scales_are_not_put_together(tmp_path):
    foraging, spread, more = (
        gather([write_run(tmp_path / name, env=env)])
        for name, env in (("a", "lbf/8x8-2p-2f"), ("b", "star-spread/5"), ("c", "star-spread/9"))
    )
    assert "different meanings" in over_scenarios(foraging + spread).reason
    assert "different scales" in over_scenarios(spread + more).reason
    assert not over_scenarios(spread).reason


@pytest.mark.parametrize(
    ("graph", "tag"),
    [
        ("oracle", "oracle"),
        ("random:0.3", "random0.3"),
        ("fixed:/a/b.npy", "fixed"),
        ("/x/my.py:Mine", "Mine"),
        ("interventional:3", "interventional3"),
        ("interventional:1:2", "interventional-sampled2"),
        ("interventional:10:2", "interventional10-sampled2"),
    ],
)
def test_graph_sources_have_short_names(graph, tag):
    assert graph_tag(graph) == tag


def test_curves_are_interpolated_between_evaluations(tmp_path):
    result = read_run(write_run(tmp_path / "run", finals=(0.3, 0.6)))
    np.testing.assert_allclose(on_grid(result, 3, 3000)[0], [0.0, 0.05, 0.2])
