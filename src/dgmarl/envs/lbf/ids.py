"""Parsing of ids, the text after `lbf/`: our short form or the original's."""

import re

from dgmarl.config.ranges import RANGES
from dgmarl.errors import UnknownNameError, UsageError, did_you_mean

from .types import LBFConfig

# The scenarios of the paper.
PAPER_IDS = (
    "15x15-4p-3f",
    "15x15-3p-4f",
    "10x10-3p-3f",
    "8x8-2p-4f-coop",
    "10x10-2p-3f-coop",
    "15x15-3p-4f-coop",
)

_NUMBER = "(?:0|[1-9][0-9]{0,3})"
_BODY = re.compile(
    f"(?P<grid>grid-)?(?:(?P<sight>{_NUMBER})s-)?(?P<rows>{_NUMBER})x(?P<columns>{_NUMBER})"
    f"-(?P<players>{_NUMBER})p-(?P<foods>{_NUMBER})f"
    "(?P<variant>-coop-shared|-coop|-wta)?(?P<ind>-ind)?(?P<pen>-pen)?"
)
_ORIGINAL = re.compile("(?P<custom>Custom-)?Foraging-(?P<body>.*)-v3")
# (force_coop, winner_take_all)
_VARIANTS = {
    "": (False, False),
    "-coop": (True, True),
    "-coop-shared": (True, False),
    "-wta": (False, True),
}
_PENALTY = 0.1


def parse(text: str) -> LBFConfig:
    """The configuration of an id, such as `10x10-3p-3f`, `2s-8x8-2p-2f-coop-shared` or
    `Custom-Foraging-8x8-2p-4f-coop-v3`.

    Short form: [grid-][{k}s-]{S}x{S}-{P}p-{F}f[-coop|-coop-shared|-wta][-ind][-pen]. `{k}s`: sight
    of k cells. `-coop`: every food has the highest level and the winner takes all, as in the paper.
    `-coop-shared`: the original cooperative game. `-wta`: winner-take-all with random levels.
    `-ind`: foods of level 1. `-pen`: a failed load costs 0.1. In original ids `-coop` does not
    imply winner-take-all; the prefix `Custom-` does."""
    original = _ORIGINAL.fullmatch(text)
    match = _BODY.fullmatch(original["body"] if original else text)
    if match is None or (original and match["variant"] not in (None, "-coop")):
        sizes, players, foods = (RANGES[f"lbf.{name}"] for name in ("size", "n_players", "n_foods"))
        hint = did_you_mean(f"lbf/{text}", [f"lbf/{name}" for name in PAPER_IDS])
        raise UnknownNameError(
            f"there is no game lbf/{text}; write lbf/SxS-Pp-Ff with size {sizes}, players "
            f"{players} and foods {foods}, then optionally -coop, -coop-shared or -wta, -ind, "
            f"-pen, or an original id Foraging-...-v3, for example lbf/{PAPER_IDS[2]}{hint}"
        )
    if match["rows"] != match["columns"]:
        given = f"{match['rows']}x{match['columns']}"
        raise UnknownNameError(
            f"lbf/{text}: the field must be square, but {given} was given; for example "
            f"lbf/{PAPER_IDS[2]}."
        )
    force_coop, winner_take_all = _VARIANTS[match["variant"] or ""]
    try:
        return LBFConfig(
            size=int(match["rows"]),
            n_players=int(match["players"]),
            n_foods=int(match["foods"]),
            force_coop=force_coop,
            winner_take_all=bool(original["custom"]) if original else winner_take_all,
            sight=int(match["sight"]) if match["sight"] else None,
            penalty=_PENALTY if match["pen"] else 0.0,
            max_food_level=1 if match["ind"] else None,
            observation="grid" if match["grid"] else "vector",
        )
    except UsageError as error:
        raise UnknownNameError(
            f"lbf/{text}: {str(error).rstrip('.')}; for example lbf/{PAPER_IDS[2]}."
        ) from None


def id_of(config: LBFConfig) -> str:
    """The short id of a configuration; options that it cannot express are left out."""
    variant = next(
        name
        for name, rule in _VARIANTS.items()
        if rule == (config.force_coop, config.winner_take_all)
    )
    return (
        f"{'grid-' if config.observation == 'grid' else ''}"
        f"{'' if config.sees_everything else f'{config.sight}s-'}"
        f"{config.size}x{config.size}-{config.n_players}p-{config.n_foods}f{variant}"
        f"{'-ind' if config.max_food_level == 1 else ''}{'-pen' if config.penalty else ''}"
    )
