"""Groups of methods that the paper compares."""

BACKBONES = {"ippo": "IPPO", "mappo": "MAPPO"}
VALUES = ("iql", "vdn", "qmix", "qplex")
