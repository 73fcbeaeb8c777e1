"""Matrix games: small enough to verify credit and value decomposition by hand."""

from dgmarl.envs.matrix.env import (
    MatrixGame,
    MatrixState,
    climbing,
    parse_matrix_game,
    penalty,
    two_step,
)

__all__ = ["MatrixGame", "MatrixState", "climbing", "parse_matrix_game", "penalty", "two_step"]
