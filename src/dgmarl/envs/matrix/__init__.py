"""Matrix games: environments so small that credit and value decomposition can be checked by
hand."""

from dgmarl.envs.matrix.env import (
    MatrixGame,
    MatrixState,
    climbing,
    parse_matrix_game,
    penalty,
    two_step,
)

__all__ = ["MatrixGame", "MatrixState", "climbing", "parse_matrix_game", "penalty", "two_step"]
