"""Gymnasium environments with tuples over agents: `gymnasium:Foraging-8x8-2p-1f-v3`,
`gymnasium:my_pkg:MyEnv-v0`.

The name is an id of Gymnasium's registry, if need be after the module that registers it; see `host`
for the rest."""

from functools import partial

from dgmarl.envs.adapters.host import make_host

make = partial(make_host, "gymnasium")
