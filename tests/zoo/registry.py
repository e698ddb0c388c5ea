"""All cases of the zoo, by name."""

from . import (
    models_line_data,
    models_line_jumps,
    models_line_narrow,
    models_line_noise,
    models_line_sensor,
    models_line_shapes,
    models_line_time,
    models_plane,
    models_plane_data,
    models_plane_free,
)

ZOO = {}
for _module in (
    models_line_noise,
    models_line_shapes,
    models_line_jumps,
    models_line_sensor,
    models_line_narrow,
    models_line_data,
    models_line_time,
    models_plane,
    models_plane_data,
    models_plane_free,
):
    for _name, _case in _module.ZOO.items():
        if _name in ZOO:
            raise ValueError(f"two cases are called {_name}")
        ZOO[_name] = _case
