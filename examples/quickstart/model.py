"""The level of a river: a random walk, seen with noise."""

import psdfilter as psd

bounds = {"drift": (0, None), "noise": (0, None)}


def river(drift=1000.0, noise=10000.0):
    return psd.linear_gaussian(F=1.0, Q=drift, H=1.0, R=noise, m0=1000.0, P0=1e6)
