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

from ex2.arrays import Array
from ex2.batch import Batch
from ex2.bonus import check_device, make_bonus
from ex2.bonuses.exemplar.kernel import KernelExemplarSettings, KernelSum
from ex2.bonuses.exemplar.model import ExemplarModel
from ex2.bonuses.exemplar.propositions import log_kernel_peak
from ex2.bonuses.exemplar.smoothing import AUTO, CENTRES, dimensions_of, sigma_of_rate, target_rate
from ex2.errors import UsageError, unknown
from ex2.inputs import TAIL, compressed
from ex2.networks import middle_and_spread, usable

CLOSED = "kernel-exemplar"
"""The model that is summed instead of trained."""
SETTINGS: dict[str, dict[str, Any]] = {
    CLOSED: {"kernels": 16_384, "information_rate": None},
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
JUDGED = 5_000  # rows of the fit that the threshold is taken from, at the most
LEAST = 1e-6  # smoothing that double precision can sum
FIXED = {"seed", "device", "replay_capacity", "state_noise", "metric", "entries", "inputs"}  # settings that are the estimator's
RESOLUTION = 1e-12  # of a middle: deviations below it are float64's rounding
FARTHEST = 1e300  # deviations that a number is away at the most


class ExemplarDensity(DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A density, estimated by telling points apart.

    Columns are scaled by their middle and deviation, both without the outermost 1 %, and beyond 5 deviations like logarithms
    (`ex2.inputs.compressed`), so that heavy tails do not decide. With noise on the states (`noise="state"`) the noise q is
    known, a Gaussian of `smoothing` such deviations, and what is estimated is the density of the data smoothed by it,
    (P * q)(x): an optimal discriminator says D(x) = q(0) / (q(0) + (P * q)(x)) of x as its own exemplar, so

        log (P * q)(x) = log((1 - D(x)) / D(x)) + log q(0).

    The "kernel-exemplar" model is that discriminator in closed form, a sum over kernels: a normalised log density in the units
    of the data, whatever they are and however little the smoothing. Of the paper's models it is normalised up to how well they
    are trained. As `smoothing` goes to 0 it becomes the density of the data, and as hard to estimate.

    With noise in a learned latent space (`noise="latent"`, for the paper's models) q(0) is not known, nor the same for every
    x: `score_samples` is log((1 - D(x)) / D(x)), which orders states, and is a log density up to a constant only where the
    encoder spreads all states alike. Use it to rank, not to integrate.

    To find outliers, the names are PyOD's: `decision_function` (higher is stranger: minus the log density), `decision_scores_`
    of the rows of the fit, each without its own kernel, `threshold_` by `contamination`, and `predict`, 1 for an outlier and 0
    otherwise.

    Args:
        model: "kernel-exemplar", or the paper's "amortized" or "k-exemplar".
        smoothing: "auto", or a value. For state noise its standard deviation, in those of the features; for latent noise the KL
            weight ("amortized") or the noise's standard deviation ("k-exemplar", for which "auto" is 0.1).
        noise: "state" or "latent".
        contamination: the share of rows that `predict` calls outliers.
        steps: gradient steps of the paper's models; None for the model's own.
        max_seconds: end training after this long, with the learning rate timed by it. Results then depend on the machine.
        device: where it is computed.
        random_state: seed, generator or None, as in scikit-learn.
        settings: other settings of the model, such as {"hidden": 64}, or {"kernels": 4_096} of the closed form.

    Attributes:
        model_: the sum over kernels, or the trained model.
        middle_, scale_: of the features.
        smoothing_: the standard deviation of noise on states, in those of the features, 0 for latent noise.
        decision_scores_, threshold_, labels_: as in PyOD.
        n_features_in_: as in scikit-learn.

    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> density = ExemplarDensity(random_state=0).fit(X)
    >>> density.score_samples([[0.0, 0.0], [3.0, 3.0]]).argmax()
    np.int64(0)
    """

    def __init__(
        self,
        model: str = "kernel-exemplar",
        *,
        smoothing: float | str = AUTO,
        noise: str = "state",
        contamination: float = 0.1,
        steps: int | None = None,
        max_seconds: float | None = None,
        device: str = "cpu",
        random_state: Any = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.smoothing = smoothing
        self.noise = noise
        self.contamination = contamination
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
        if self.smoothing != AUTO and not (number and np.isfinite(self.smoothing) and self.smoothing >= LEAST):  # type: ignore[operator]
            raise UsageError(f"smoothing={self.smoothing!r} must be a number of at least {LEAST}, or {AUTO!r}.")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise UsageError(f"max_seconds={self.max_seconds} must be above 0, or None.")
        if self.steps is not None and (not isinstance(self.steps, int | np.integer) or self.steps < 1):
            raise UsageError(f"steps={self.steps} must be a whole number of at least 1, or None.")
        for name in set(self.settings or {}) & FIXED:
            raise UsageError(f"settings={{{name!r}: ...}} is set by the estimator itself: use its own arguments.")
        if not (isinstance(self.contamination, int | float | np.number) and 0.0 < self.contamination <= 0.5):
            raise UsageError(f"contamination={self.contamination} must be a share of the rows, above 0 and at most 0.5.")
        check_device(self.device)
        chosen = dict(SETTINGS[self.model])
        if self.model == CLOSED:
            return self._chosen_closed(chosen)
        if self.noise == "state":
            chosen["state_noise"] = self.smoothing
        elif self.model == "amortized":
            chosen |= {"kl_weight": self.smoothing, "scatter": 0.0, "state_noise": 0.0}
        else:
            chosen |= {"latent_noise": LATENT_NOISE if self.smoothing == AUTO else self.smoothing, "state_noise": 0.0}
        if self.max_seconds is not None:
            chosen["steps"] = LONGEST
        if self.steps is not None:
            chosen["steps"] = self.steps
        return chosen | {"first_steps": None} | (self.settings or {})

    def _chosen_closed(self, chosen: dict[str, Any]) -> dict[str, Any]:
        if self.noise != "state":
            raise UsageError(f"The model {self.model!r} takes noise='state' only: its kernel is a known one.")
        for name in self.settings or {}:
            if name not in chosen:
                raise unknown(f"setting of the model {self.model!r}", name, chosen)
        chosen |= self.settings or {}
        KernelExemplarSettings(**chosen)  # refuses what cannot be
        return chosen

    def fit(self, X: Any, y: Any = None) -> ExemplarDensity:
        """Every row of X [n, d] is an exemplar and part of the background."""
        X = validate_data(self, X, dtype=np.float64)
        chosen = self._chosen()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        middle, spread = middle_and_spread(torch.tensor(X))
        self.middle_, self.scale_ = middle.numpy(), usable(spread, middle, RESOLUTION).numpy()
        if self.model == CLOSED:
            generator = torch.Generator().manual_seed(seed)
            points = self._points(X)
            self.smoothing_ = self._smoothing(points, chosen["information_rate"], generator)
            self.model_: KernelSum | ExemplarModel = KernelSum.of(points, self.smoothing_, chosen["kernels"], generator)
        else:
            self.model_ = trained = self._trained(self._points(X).float().cpu(), chosen, seed)
            self.smoothing_ = trained.sigma
        self._rows = X
        some = np.random.default_rng(seed).permutation(len(X))[:JUDGED]
        self.threshold_ = float(np.quantile(self._strangeness(some), 1.0 - self.contamination))
        return self

    def _points(self, X: Array) -> torch.Tensor:
        """Rows in deviations, on the device."""
        with np.errstate(over="ignore"):
            scaled = np.clip((X - self.middle_) / self.scale_, -FARTHEST, FARTHEST)
        return compressed(torch.as_tensor(scaled, device=self.device))

    def _smoothing(self, points: torch.Tensor, rate: float | None, generator: torch.Generator) -> float:
        if self.smoothing != AUTO:
            return float(self.smoothing)
        some = points[torch.randperm(len(points), generator=generator)[:CENTRES].to(points.device)].cpu()
        return sigma_of_rate(some, target_rate(len(points), dimensions_of(some)) if rate is None else rate, generator)

    def _trained(self, rows: torch.Tensor, chosen: dict[str, Any], seed: int) -> ExemplarModel:
        """One of the paper's models, trained until it has not collapsed."""
        space = spaces.Box(-np.inf, np.inf, (rows.shape[1],), np.float32)
        model = make_bonus(self.model, space, space, replay_capacity=len(rows), seed=seed, device=self.device, **chosen)
        assert isinstance(model, ExemplarModel)
        model.seconds = self.max_seconds
        batch = Batch.of(rows[:, None], torch.zeros(len(rows), 1, rows.shape[1]), rows[:, None])
        model.remember(batch)
        metrics = model.prepare(batch)
        for _ in range(TRIES - 1):
            if metrics["collapsed"]:
                if model.fitted:
                    model.begin_anew()
                metrics = model.prepare(batch)
        if metrics["collapsed"]:
            warnings.warn(
                f"The discriminators have collapsed {TRIES} times, and these densities say nothing: change smoothing or steps.",
                ConvergenceWarning,
                stacklevel=3,
            )
        model.networks.double()  # so that a row's score does not depend on the rows that are scored with it
        return model

    def score_samples(self, X: Any) -> Array:
        """The log density of each row of X: normalised with state noise, proportional with latent noise. [m, d] -> [m]"""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        points = self._points(X)
        if isinstance(self.model_, KernelSum):
            visits = self.model_.log_visits(points).cpu().numpy() - np.log(self.model_.counts.sum().item())
            density: Array = visits + self._peak(X)
            return density
        found: Array = self.model_.log_density(points).double().numpy()
        return found if self.noise == "latent" else found + self._peak(X)

    def _peak(self, X: Array) -> Array:
        """log q(0) in the units of the data, and by how much the tails are compressed, [m]."""
        spread = np.log(self.scale_).sum()
        if isinstance(self.model_, ExemplarModel):
            stem = self.model_.stem
            spread = spread + np.log(stem.spread().double().cpu().numpy()).sum()
        with np.errstate(over="ignore"):
            far = np.clip(np.abs(X - self.middle_) / self.scale_ / TAIL, 1.0, FARTHEST)
        peak: Array = log_kernel_peak(self.smoothing_, X.shape[1]) - spread - np.log(far).sum(1)
        return peak

    def _strangeness(self, which: Array) -> Array:
        """Minus the log density of some rows of the fit; in the closed form each without itself."""
        X = self._rows[which]
        if not isinstance(self.model_, KernelSum):
            return -self.score_samples(X)
        others = self.model_.log_visits_of_others(self._points(X), torch.as_tensor(which)).cpu().numpy()
        others = np.maximum(others, -FARTHEST)  # of a row that is all there is
        density: Array = others - np.log(max(len(self._rows) - 1, 1)) + self._peak(X)
        return -density

    @property
    def decision_scores_(self) -> Array:
        """How strange the rows of the fit are; computed whenever it is asked for."""
        check_is_fitted(self)
        return self._strangeness(np.arange(len(self._rows)))

    @property
    def labels_(self) -> Array:
        """1 for the outliers among the rows of the fit, 0 for the others."""
        return (self.decision_scores_ > self.threshold_).astype(int)

    def decision_function(self, X: Any) -> Array:
        """How strange each row of X is: minus its log density. [m, d] -> [m]"""
        return -self.score_samples(X)

    def predict(self, X: Any) -> Array:
        """1 for a row that is stranger than the threshold of the fit, 0 for others. [m, d] -> [m]"""
        return (self.decision_function(X) > self.threshold_).astype(int)

    def score(self, X: Any, y: Any = None) -> float:
        """The total log density of X, as `sklearn.neighbors.KernelDensity` has it."""
        return float(self.score_samples(X).sum())
