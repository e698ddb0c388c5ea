"""# Bearings only: a target that is seen at an angle

A target at nearly constant velocity is seen by its bearing alone, from a platform that sails
straight on: four coordinates, one precise angle. The distance is never measured, so the posterior
is a thin wedge along the line of sight, and the prior's idea of the distance fades with time. The
dynamics are linear, so the filter is a mixture of Gaussians that is split where the bearing bends
and merged where it does not.
"""

# %%
import warnings

import jax
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

system = psd.systems.bearings_only
states, ys = (np.asarray(a) for a in system.simulate(1, 20))
model = psd.learn(system(), tol=1e-2)
print(f'engine "{model.engine}": {model.report.reason}')

# %%
# A mixture cannot promise 1e-2 here, and a warning says so. The estimate is pessimistic: it forgets
# nothing along the line of sight, where nothing is ever measured.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", psd.ResolutionWarning)
    post = psd.run_filter(model, ys)
print("every step within tol:", bool(post.error_estimate < model.tol))
sd = np.sqrt(np.diagonal(np.asarray(post.covariance), axis1=1, axis2=2))
for t in (0, 9, 19):
    print(f"t = {t + 1:2d}: position x {float(post.mean[t, 0]):7.2f} +- {sd[t, 0]:.2f}")

# %%
ax = psd.plot.track(post, (0, 2), truth=states, names=("x", "vx", "y", "vy"))
