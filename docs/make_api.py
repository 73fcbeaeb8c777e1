"""Write docs/api.md from the docstrings of what `dgmarl` exports: `python docs/make_api.py`.

A test checks that the committed page is current."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import dgmarl

PAGE = Path(__file__).with_name("api.md")
HEAD = """# Python API

<!-- Written by `python docs/make_api.py` from the docstrings; do not edit. -->

Everything that `import dgmarl` offers. Annotations name the axes of arrays: S seeds, K evaluations,
E episodes, T steps, B environments, N agents, A actions; `*B` is any number of batch axes. Credit
functions are pure and run under `jit`, `vmap` and `grad`.
"""
SECTIONS = {
    "Training and runs": ("dgmarl.api", "dgmarl.runs", "dgmarl.report", "dgmarl.errors"),
    "Environments": ("dgmarl.envs",),
    "Credit and graphs": ("dgmarl.credit", "dgmarl.graphs"),
}
ALSO = {"Run": "Policy", "Policy": "Episode"}
"""Classes of the module of an exported one that its methods return, told of after it."""
Definition = ast.FunctionDef | ast.ClassDef


def page() -> str:
    """The whole page."""
    names = [name for name in dgmarl.__all__ if not name.startswith("_")]
    parts, told = [HEAD], set()
    for title, modules in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            thing = getattr(dgmarl, name)
            if thing.__module__.startswith(modules):
                told.add(name)
                parts += entries(name, thing.__module__)
    assert told == set(names), f"no section for {set(names) - told}"
    return "\n".join(parts)


def entries(name: str, module: str) -> list[str]:
    """A class or function of a module, and the classes that go with it."""
    node = next(
        node
        for node in ast.parse(inspect.getsource(import_module(module))).body
        if isinstance(node, Definition) and node.name == name
    )
    head, about = f"### {name}\n", f"{markdown(node)}\n"
    if isinstance(node, ast.FunctionDef):
        return [head, signature(node, f"dgmarl.{name}"), about]
    others = entries(ALSO[name], module) if name in ALSO else []
    return [head, about, *members(node), *others]


def signature(node: ast.FunctionDef, name: str) -> str:
    """As one would write it; an argument per line where one line would be long."""
    node.args.args = [each for each in node.args.args if each.arg != "self"]
    text = ast.unparse(node.args).replace("'", '"')
    text = re.sub(r"(?<=[\w\])\"])=(?!=)", " = ", text)
    result = f" -> {ast.unparse(node.returns)}".replace("'", '"') if node.returns else ""
    if len(name + text + result) > 90:
        listed = re.split(r", (?=\w+: |\*)", text)
        text = "".join(f"\n    {each}," for each in listed) + "\n"
    return f"```python\n{name}({text}){result}\n```\n"


def members(node: ast.ClassDef) -> list[str]:
    """Fields, properties and methods with a docstring, as a list and signatures."""
    bullets, methods = [], []
    for each, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(each, ast.AnnAssign) and not ast.unparse(each.target).startswith("_"):
            about = after.value.value if _is_text(after) else ""
            kind = ast.unparse(each.annotation).replace("'", '"')
            bullets.append(f"- `{ast.unparse(each.target)}: {kind}`{_told(about)}")
        if not isinstance(each, ast.FunctionDef) or each.name.startswith("_"):
            continue
        about = ast.get_docstring(each) or ""
        if any(ast.unparse(mark).endswith("property") for mark in each.decorator_list):
            bullets.append(f"- `{each.name}`{_told(about)}")
        else:
            methods.append(f"{signature(each, f'{node.name}.{each.name}')}\n{markdown(each)}\n")
    return ["\n".join([*bullets, ""])] * bool(bullets) + methods


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _told(about: object) -> str:
    return f": {' '.join(str(about).split())}" if about else ""


def markdown(node: Definition) -> str:
    """A docstring as Markdown: examples become blocks of Python."""
    text = ast.get_docstring(node) or ""
    return re.sub(
        r"(?m)^>>> .*(\n(?!\n).*)*", lambda found: f"```pycon\n{found[0].rstrip()}\n```", text
    )


if __name__ == "__main__":
    PAGE.write_text(page())
