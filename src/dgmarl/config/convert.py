"""Converts configurations of older formats to the current one."""

from collections.abc import Mapping
from typing import Any

from dgmarl.config.methods import METHODS
from dgmarl.config.schema import FORMAT_VERSION
from dgmarl.errors import UsageError

_RENAMED = {"entropy": "entropy_coef", "clip": "clip_eps", "gradient_clip": "max_grad_norm"}
_REMOVED_CREDIT = {"adapt_cross_weight": False, "edge_strength": 1.0, "fade": 1.0}
_REMOVED_MODEL = {"keep": 1.0, "keep_of": "state", "replay": 1, "warm_up": 0, "transpose": False}
HORIZON = -1
"""Stands for a `rollout_length` equal to the horizon, which format 1 does not store."""


def upgrade(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a configuration to the current format; a newer one raises UsageError.

    Options that format 2 does not have are dropped: they affect training, not the policy.
    """
    version = values.get("format", FORMAT_VERSION)
    for section in ("learner", "credit", "graph_model"):
        if not isinstance(values.get(section, {}), Mapping):
            raise UsageError(f"{section} is {values[section]!r}, but must be a mapping of fields.")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise UsageError(
            f"format is {version}, newer than this dgmarl knows ({FORMAT_VERSION}): update dgmarl."
        )
    new = _from_format_1(values) if version == 1 else dict(values)
    if "format" in values and "cross_weight" in new.get("credit", {}):
        # Written before the field `others` existed.
        new["credit"] = {"others": "sum", **new["credit"]}
    return new


def removed_options(values: Mapping[str, Any]) -> list[str]:
    """Options of a format-1 configuration that affected training and no longer exist."""
    learner, model = values.get("learner", {}), values.get("graph_model", {})
    used = [f"learner.{k}" for k, v in _REMOVED_CREDIT.items() if learner.get(k, v) != v]
    if values.get("graph") == "learned":
        used += [f"graph_model.{k}" for k, v in _REMOVED_MODEL.items() if model.get(k, v) != v]
    return used


def _from_format_1(values: Mapping[str, Any]) -> dict[str, Any]:
    new = {name: value for name, value in values.items() if name not in ("collect", "window")}
    if values.get("collect") == "windows":
        new["rollout_length"] = values.get("window") or HORIZON
    learner = dict(values.get("learner", {}))
    method = METHODS.get(str(values.get("method")))
    kind = learner.pop("credit", None)
    standardise = learner.pop("standardise_reward", method is not None and method.whole_episodes)
    credit: dict[str, Any] = {"reward_scaling": "standardise" if standardise else "none"}
    weighted = learner.pop("weighted", True)
    form, cross_weight = learner.pop("form", "td"), learner.pop("cross_weight", 1.0)
    if kind == "graph":
        unreached = round(1 - learner.get("lambda_", 0.95), 10) if weighted else 0.0
        credit |= {"unreached_weight": unreached, "advantage_form": form}
        credit["cross_weight"] = cross_weight
    for name in _REMOVED_CREDIT:
        learner.pop(name, None)
    if "target_update" in learner:
        every = learner.pop("target_update")
        learner |= {"tau": every} if every <= 1 else {"target_update_interval": round(every)}
        learner["target_update_unit"] = learner.pop("target_unit", "updates")
    new["learner"] = {_RENAMED.get(name, name): value for name, value in learner.items()}
    new["credit"] = credit
    model = dict(values.get("graph_model", {}))
    for name in (*_REMOVED_MODEL, "mask_unavailable"):
        model.pop(name, None)
    return {**new, "graph_model": model, "format": FORMAT_VERSION}
