"""PettingZoo's `ParallelEnv`s: `pettingzoo:mpe2.simple_spread_v3`, `pettingzoo:my_env.py`.

The name is a module or a file with a function `parallel_env(**options)`; see `host` for the rest.
"""

from functools import partial

from dgmarl.envs.adapters.host import make_host

make = partial(make_host, "pettingzoo")
