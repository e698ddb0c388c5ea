"""Filters and smoothers of models with regimes, written down plainly in NumPy."""

import numpy as np


def normal(x, mean, sd):
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))


def wrapped_normal(delta, sd, turns=6):
    return sum(normal(delta + 2 * np.pi * k, 0.0, sd) for k in range(-turns, turns + 1))


def dense_filter(x, starts, moves, sensors, P, initial, ys):
    """p(k, x_t | y_1 ... y_t) on a fine grid x.

    starts[k](x), moves[k](u, x), sensors[k](x, y); P(u) of shape (n, K, K), or one matrix.
    """
    h, num = x[1] - x[0], len(starts)
    tables = [moves[k](x[:, None], x[None, :]) for k in range(num)]
    switch = P(x) if callable(P) else np.broadcast_to(P, (len(x), num, num))
    law = np.stack([initial[k] * starts[k](x) for k in range(num)])
    logs, laws, predicted = [], [], []
    for y in ys:
        mixed = np.einsum("njk,jn->kn", switch, law)
        ahead = np.stack([mixed[k] @ tables[k] * h for k in range(num)])
        new = ahead if np.isnan(y) else ahead * np.stack([sensors[k](x, y) for k in range(num)])
        mass = new.sum() * h
        logs.append(0.0 if np.isnan(y) else np.log(mass))
        law = new / mass
        laws.append(law)
        predicted.append(ahead)
    return np.array(logs), np.array(laws), np.array(predicted)


def dense_smoother(x, moves, P, laws, predicted):
    """p(k, x_t | all y), backwards over the laws of `dense_filter`."""
    h, num = x[1] - x[0], laws.shape[1]
    tables = [moves[k](x[:, None], x[None, :]) for k in range(num)]
    switch = P(x) if callable(P) else np.broadcast_to(P, (len(x), num, num))
    out = [laws[-1]]
    for t in range(len(laws) - 2, -1, -1):
        ratio = np.where(predicted[t + 1] > 1e-250, out[0] / (predicted[t + 1] + 1e-300), 0.0)
        back = np.stack([tables[k] @ ratio[k] * h for k in range(num)])
        out.insert(0, laws[t] * np.einsum("nkj,jn->kn", switch, back))
    return np.array(out)


def hidden_markov(P, initial, likelihoods):
    """Forward and backward probabilities of a chain, from p(y_t | k) of shape (T, K)."""
    alpha, logs, filtered = np.asarray(initial), [], []
    for row in likelihoods:
        alpha = (alpha @ P) * row
        logs.append(np.log(alpha.sum()))
        alpha = alpha / alpha.sum()
        filtered.append(alpha)
    beta, smoothed = np.ones(len(initial)), [filtered[-1]]
    for t in range(len(likelihoods) - 2, -1, -1):
        beta = P @ (likelihoods[t + 1] * beta)
        both = filtered[t] * beta
        smoothed.insert(0, both / both.sum())
        beta = beta / beta.sum()
    return np.array(logs), np.array(filtered), np.array(smoothed)
