"""Exemplar models as a density estimator with scikit-learn's interface."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ex2.batch import Batch
from ex2.bonus import check_device, make_bonus
from ex2.errors import UsageError, unknown
from ex2.exemplar.model import ExemplarModel
from ex2.exemplar.propositions import log_kernel_peak
from ex2.exemplar.smoothing import AUTO

SETTINGS: dict[str, dict[str, Any]] = {
    "kernel-exemplar": {"steps": 1_000},
    "amortized": {
        "metric": "learned",
        "steps": 1_500,
        "learning_rate": 1e-2,
        "gain": 3.0,
        "kl_weight": 1e-4,
        "information_rate": None,
    },
    "k-exemplar": {"metric": "learned", "steps": 200, "hidden": 64, "gain": 1.5, "newton_steps": 8, "newton_negatives": 4_096},
}
"""What each model is built with here; `settings` comes on top."""
NOISES = ("state", "latent")
LATENT_NOISE = 0.1  # of the K-exemplar model where none is said
TRIES = 3  # fits, if those before have collapsed
LONGEST = 1_000_000  # steps within a time budget


class ExemplarDensity(DensityMixin, BaseEstimator):
    """A density, estimated by telling points apart.

    With noise on the states (`noise="state"`) the noise q is known, a Gaussian of `smoothing` standard deviations of each
    feature, and what is estimated is the density of the data smoothed by it, (P * q)(x): an optimal discriminator says
    D(x) = q(0) / (q(0) + (P * q)(x)) of x as its own exemplar, so

        log (P * q)(x) = log((1 - D(x)) / D(x)) + log q(0).

    That is a normalised log density, in the units of the data, up to how well the discriminator is trained. The
    "kernel-exemplar" model has the network output log (P * q)(x) itself. As `smoothing` goes to 0 it becomes the density of
    the data, and as hard to estimate.

    With noise in a learned latent space (`noise="latent"`, for the paper's models) q(0) is not known, nor the same for every
    x: `score_samples` is log((1 - D(x)) / D(x)), which orders states, and is a log density up to a constant only where the
    encoder spreads all states alike. Use it to rank, not to integrate.

    Args:
        model: "kernel-exemplar", or the paper's "amortized" or "k-exemplar".
        smoothing: "auto", or a value. For state noise its standard deviation, in those of the features; for latent noise the KL
            weight ("amortized") or the noise's standard deviation ("k-exemplar", for which "auto" is 0.1).
        noise: "state" or "latent".
        steps: gradient steps; None for the model's own.
        max_seconds: end training after this long, with the learning rate timed by it. Results then depend on the machine.
        device: where the networks run.
        random_state: seed, generator or None, as in scikit-learn.
        settings: other settings of the model, such as {"hidden": 64}.

    Attributes:
        model_: the trained exemplar model. smoothing_: the standard deviation of noise on states, in those of the features
        (scale_), 0 for latent noise. information_rate_: in nats, what a smoothed point tells of where it came from
        ("kernel-exemplar" only). n_features_in_.

    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> density = ExemplarDensity(steps=100, random_state=0).fit(X)
    >>> density.score_samples([[0.0, 0.0], [3.0, 3.0]]).argmax()
    np.int64(0)
    """

    def __init__(
        self,
        model: str = "kernel-exemplar",
        *,
        smoothing: float | str = AUTO,
        noise: str = "state",
        steps: int | None = None,
        max_seconds: float | None = None,
        device: str = "cpu",
        random_state: Any = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.smoothing = smoothing
        self.noise = noise
        self.steps = steps
        self.max_seconds = max_seconds
        self.device = device
        self.random_state = random_state
        self.settings = settings

    def _chosen(self) -> dict[str, Any]:
        """The settings that the model is built with."""
        if self.model not in SETTINGS:
            raise unknown("model", self.model, SETTINGS)
        if self.noise not in NOISES:
            raise unknown("noise", self.noise, NOISES)
        number = isinstance(self.smoothing, int | float | np.number)
        if self.smoothing != AUTO and not (number and np.isfinite(self.smoothing) and self.smoothing > 0):  # type: ignore[operator]
            raise UsageError(f"smoothing={self.smoothing!r} must be a number above 0, or {AUTO!r}.")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise UsageError(f"max_seconds={self.max_seconds} must be above 0, or None.")
        if self.steps is not None and (self.steps != int(self.steps) or self.steps < 1):
            raise UsageError(f"steps={self.steps} must be a whole number of at least 1, or None.")
        for name in set(self.settings or {}) & {"seed", "device", "replay_capacity", "state_noise"}:
            raise UsageError(f"settings={{{name!r}: ...}} is set by the estimator itself: use its own arguments.")
        check_device(self.device)
        chosen = dict(SETTINGS[self.model])
        if self.noise == "state":
            chosen["state_noise"] = self.smoothing
        elif self.model == "amortized":
            chosen |= {"kl_weight": self.smoothing, "scatter": 0.0, "state_noise": 0.0}
        elif self.model == "k-exemplar":
            chosen |= {"latent_noise": LATENT_NOISE if self.smoothing == AUTO else self.smoothing, "state_noise": 0.0}
        else:
            raise UsageError(f"The model {self.model!r} takes noise='state' only: its kernel is a known one.")
        if self.max_seconds is not None:
            chosen["steps"] = LONGEST
        if self.steps is not None:
            chosen["steps"] = self.steps
        return chosen | {"first_steps": None} | (self.settings or {})

    def fit(self, X: Any, y: Any = None) -> ExemplarDensity:
        """Trains the model: every row of X [n, d] is an exemplar and part of the background."""
        X = validate_data(self, X, dtype=np.float64)
        chosen = self._chosen()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.mean_ = X.mean(0)
        spread = X.std(0)
        self.scale_ = np.where(spread > 1e-12, spread, 1.0)
        space = spaces.Box(-np.inf, np.inf, (X.shape[1],), np.float32)
        model = make_bonus(self.model, space, space, replay_capacity=len(X), seed=seed, device=self.device, **chosen)
        assert isinstance(model, ExemplarModel)
        model.seconds = self.max_seconds
        rows = self._rows(X)
        batch = Batch.of(rows[:, None], torch.zeros(len(X), 1, X.shape[1]), rows[:, None])
        model.remember(batch)
        metrics = model.fit(batch)
        for _ in range(TRIES - 1):
            if metrics["collapsed"]:
                if model.fitted:
                    model.begin_anew()
                metrics = model.fit(batch)
        if metrics["collapsed"]:
            warnings.warn(
                f"The discriminators have collapsed {TRIES} times, and these densities say nothing: change smoothing or steps.",
                ConvergenceWarning,
                stacklevel=2,
            )
        model.networks.double()  # so that a row's score does not depend on the rows that are scored with it
        self.model_, self.smoothing_ = model, model.sigma
        self.information_rate_ = metrics.get("information_rate", float("nan"))
        return self

    def _rows(self, X: np.ndarray) -> torch.Tensor:
        return torch.as_tensor((X - self.mean_) / self.scale_, dtype=torch.float32)

    def score_samples(self, X: Any) -> np.ndarray:
        """The log density of each row of X: normalised with state noise, proportional with latent noise. [m, d] -> [m]"""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        found = self.model_.log_density(self._rows(X).double()).double().numpy()
        if self.noise == "latent":
            return found
        spread = self.scale_ * self.model_.stem.spread().double().cpu().numpy()
        return found + log_kernel_peak(self.smoothing_, X.shape[1]) - np.log(spread).sum()

    def score(self, X: Any, y: Any = None) -> float:
        """The total log density of X, as `sklearn.neighbors.KernelDensity` has it."""
        return float(self.score_samples(X).sum())
