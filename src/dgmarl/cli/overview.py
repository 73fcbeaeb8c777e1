"""The text of `dgmarl --help`, and the examples at the end of each command's `--help`."""

import ast
from collections.abc import Mapping

from dgmarl.trust import module_file

GROUPS = {
    "train": ("demo", "train"),
    "inspect runs": ("evaluate", "watch", "graph", "table", "report", "export"),
    "environments": ("envs", "check-env", "new-env"),
    "many runs": ("sweep", "sweep status"),
    "the paper": ("reproduce", "grid", "theory"),
    "this installation": ("doctor", "completion"),
}
"""Commands by purpose; commands of other packages come last."""
EXAMPLES = {
    "demo": ("dgmarl demo", "dgmarl demo --seeds 1 --scale 0.2 --out quick"),
    "train": (
        "dgmarl train lbf/8x8-2p-4f-coop --method ippo-dg --graph interventional --seeds 5",
        "dgmarl train my_env.py:Junction --method mappo-dg --steps 1e5 --learner.hidden 64",
        "dgmarl train --resume runs/mine --steps 2e6",
    ),
    "evaluate": ("dgmarl evaluate runs/mine", "dgmarl evaluate runs/mine --episodes 1000 --json"),
    "watch": (
        "dgmarl watch runs/mine --out replay.html",
        "dgmarl watch runs/mine --trained-seed 3 --out replay.gif",
        "dgmarl watch lbf/8x8-2p-4f-coop",
    ),
    "graph": ("dgmarl graph runs/mine --out graph.html", "dgmarl graph runs/mine --episodes 10"),
    "table": (
        "dgmarl table runs",
        "dgmarl table runs/grid --best",
        "dgmarl table results/lbf --marl-eval curves.json",
    ),
    "report": (
        "dgmarl report runs/local runs/global runs/graph --out report.html",
        'dgmarl report runs --title "All of them"',
    ),
    "export": (
        "dgmarl export runs/mine --out policy.py",
        "dgmarl export runs/mine --out policy.stablehlo --which best",
    ),
    "envs": ("dgmarl envs", "dgmarl envs | grep smaclite"),
    "check-env": (
        "dgmarl check-env my_env.py:Junction",
        "dgmarl check-env lbf/8x8-2p-4f-coop --set horizon=20",
    ),
    "new-env": ("dgmarl new-env my_env.py", "dgmarl new-env cars.py"),
    "sweep": (
        "dgmarl sweep grid.yaml --out runs/grid",
        "dgmarl sweep grid.yaml --out /shared/grid --workers 2 --retries 1",
    ),
    "sweep status": ("dgmarl sweep status runs/grid", "watch dgmarl sweep status runs/grid"),
    "reproduce": (
        "dgmarl reproduce lbf --dry-run",
        "dgmarl reproduce motivation --seeds 2 --steps 2e4",
        "dgmarl reproduce all --from results",
    ),
    "grid": ("dgmarl grid star-spread --out results", "dgmarl grid lbf-oracle --steps 1e6"),
    "theory": ("dgmarl theory --out theory", "dgmarl theory --out theory --seed 1"),
    "doctor": ("dgmarl doctor", "dgmarl doctor > versions.txt"),
    "completion": (
        "dgmarl completion bash > ~/.local/share/bash-completion/completions/dgmarl",
        "source <(dgmarl completion zsh)   # in ~/.zshrc, after compinit",
        "dgmarl completion fish > ~/.config/fish/completions/dgmarl.fish",
    ),
}


def overview(commands: Mapping[str, str]) -> str:
    """What `dgmarl --help` prints. commands: module:Class by name."""
    width = max(map(len, commands))
    lines = [
        "dgmarl: multi-agent reinforcement learning with credit along dependence graphs",
        "",
        "usage: dgmarl COMMAND [options]      (dgmarl COMMAND --help lists its options)",
    ]
    listed = {name for names in GROUPS.values() for name in names}
    others = tuple(name for name in commands if name not in listed)
    for title, names in {**GROUPS, "from other packages": others}.items():
        found = [name for name in names if name in commands]
        lines += ["", title] * bool(found)
        lines += [f"  {name:<{width}}  {summary(commands[name])}" for name in found]
    lines += [
        "",
        "Every command takes --config FILE.yaml (read options) and --save-config FILE.yaml",
        "(write the resolved options, for --config).",
    ]
    return "\n".join(lines)


def summary(place: str) -> str:
    """First sentence of a command's docstring, read from the source without importing it."""
    module, _, attribute = place.partition(":")
    path = module_file(module)
    if path is None or path.suffix != ".py":
        return ""
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ClassDef) and node.name == attribute:
            text = " ".join((ast.get_docstring(node) or "").split())
            return text.partition(". ")[0].removesuffix(".")
    return ""


def examples(name: str) -> str:
    """The examples of a command, for the end of its help."""
    return "\n".join(["examples:", *(f"  {each}" for each in EXAMPLES.get(name, ())), ""])
