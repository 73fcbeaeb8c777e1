"""The paper: its runs, figures and claims, the results page, and the checks of its theory."""
