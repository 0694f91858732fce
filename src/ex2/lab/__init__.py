"""Tasks x bonuses x seeds: experiments as data, their results as tables, and what is drawn from them."""

import importlib.util

from ex2.errors import missing_extra

for _module in ("pandas", "pyarrow"):
    if importlib.util.find_spec(_module) is None:
        raise missing_extra("lab", _module)
