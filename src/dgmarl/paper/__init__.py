"""The paper's experiments: runs, figures, claims, results page and checks of the theory."""
