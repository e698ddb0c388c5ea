"""All cases of the zoo, by name."""

from . import models_line_noise

ZOO = {}
for _module in (models_line_noise,):
    for _name, _case in _module.ZOO.items():
        if _name in ZOO:
            raise ValueError(f"two cases are called {_name}")
        ZOO[_name] = _case
