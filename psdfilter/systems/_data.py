"""Real series that come with other packages; nothing is fetched."""

from typing import Any

import numpy as np


def nile() -> tuple[np.ndarray, np.ndarray]:
    """Years (T,) and yearly volume of the Nile at Aswan (T,), 1871-1970, from statsmodels."""
    try:
        from statsmodels.datasets import nile as data
    except ImportError as error:
        raise ImportError(
            "systems.nile() reads data that come with statsmodels: pip install 'psdfilter[data]'"
        ) from error
    frame: Any = data.load_pandas().data
    return frame["year"].to_numpy(int), frame["volume"].to_numpy(float)


def index_returns() -> tuple[np.ndarray, np.ndarray]:
    """Days (T,) and daily returns in percent (T,) of the S&P 500, 1999-2018, from arch.

    Returns are 100 (log p_t - log p_{t-1}) of the adjusted closing price, about their mean.
    """
    try:
        from arch.data import sp500 as data
    except ImportError as error:
        raise ImportError(
            "systems.index_returns() reads data that come with arch: pip install 'psdfilter[data]'"
        ) from error
    prices = data.load()["Adj Close"]
    returns = 100.0 * np.diff(np.log(prices.to_numpy(float)))
    return prices.index.to_numpy()[1:], returns - returns.mean()
