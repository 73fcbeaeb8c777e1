"""Grids of training runs, resumable, with one small result file per cell."""
