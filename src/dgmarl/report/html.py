"""Self-contained pages from Jinja2 templates: one file, no network access, data never executed."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from dgmarl.errors import UsageError


def render(template: str, scripts: tuple[str, ...] = (), data: Any = None, **values: Any) -> str:
    """A page from a template that extends `base.html`.

    scripts: names of scripts of this package, run in this order after `common`.
    data: passed to the scripts as JSON in a block that browsers do not execute.

    The content security policy allows only this script, by its hash, and no requests: nothing in
    the data, such as an environment's name, can become code."""
    names = ("common", *scripts) if scripts else ()
    script = "\n".join(asset(f"{name}.js") for name in names)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; form-action 'none'; base-uri 'none'"
    )
    fixed = {"policy": policy, "style": Markup(asset("page.css")), "script": Markup(script)}
    return _templates().get_template(template).render(**fixed, data=as_json(data), **values)


def asset(name: str) -> str:
    """A style sheet or script of this package."""
    return (files("dgmarl.report") / "assets" / name).read_text(encoding="utf-8")


def as_json(data: Any) -> Markup:
    """JSON that is safe in a script block, whatever its strings contain."""
    try:
        return htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise UsageError(
            "A page cannot show infinite or undefined numbers: leave out results that contain them."
        ) from None


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("dgmarl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
