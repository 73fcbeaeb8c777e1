"""Pages inside a notebook."""

from html import escape

from dgmarl.report.replay_page import replay_page
from dgmarl.runs.replays import Replay


class Inline:
    """A page that a notebook shows in a frame of its own."""

    def __init__(self, page: str, height: int):
        self.page, self.height = page, height

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.page)}" title="replay" width="100%" '
            f'height="{self.height}" style="border: 0"></iframe>'
        )


def show(replay: Replay, height: int = 720) -> Inline:
    """The player of a replay, as the last value of a notebook's cell.

    >>> run = load("runs/mine")
    >>> show(run.replay(jax.random.key(0), n_episodes=1))
    """
    return Inline(replay_page(replay), height)
