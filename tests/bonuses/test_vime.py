"""VIME against Bayesian linear regression, where everything is known in closed form."""

from __future__ import annotations

import math

import pytest
import torch

from conftest import CONTINUOUS, VECTOR, make_batch
from ex2 import Batch, UsageError, make_bonus
from ex2.bonuses.vime import BayesianNetwork


def exact_gain(deviation: float, mean: float, x: torch.Tensor, y: torch.Tensor, noise: float) -> torch.Tensor:
    """KL(posterior after (x, y) || N(mean, deviation^2)) for y = w x + noise: what one observation teaches about w."""
    ratio = 1.0 / (1.0 + (deviation * x / noise) ** 2)  # of the variances, after to before
    moved = ratio * deviation**2 * x * (y - mean * x) / noise**2
    return 0.5 * (ratio - 1.0 - ratio.log() + (moved / deviation) ** 2)


def linear(mean: float, deviation: float, noise: float) -> BayesianNetwork:
    """y = w x, with a bias that is known to be 0."""
    model = BayesianNetwork([1, 1], prior=1.0, noise=noise)
    with torch.no_grad():
        model.means[0].copy_(torch.tensor([[mean, 0.0]]))
        model.rhos[0].copy_(torch.tensor([[math.log(math.expm1(deviation)), -30.0]]))
    return model


def test_the_gain_is_that_of_bayesian_linear_regression():
    """To second order: they differ by about twice (deviation x / noise)^2, what an observation says beside what is known."""
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(50, 1, generator=random), torch.randn(50, 1, generator=random)
    for deviation in (0.02, 0.1):
        model = linear(0.7, deviation, noise=1.0)
        noise = model.draw(20_000, random)
        found, exact = model.information_gain(x, y, noise), exact_gain(deviation, 0.7, x, y, 1.0).squeeze(1)
        assert torch.corrcoef(torch.stack([found, exact]))[0, 1] > 0.999
        big = exact > exact.median()
        off = ((found / exact) - 1.0).abs() - 2.5 * (deviation * x.squeeze(1)) ** 2
        assert off[big].max() < 0.01


def test_training_finds_the_posterior_of_bayesian_linear_regression():
    """Inputs one by one hot make the true posterior factorised, so the variational bound is tight at it."""
    random = torch.Generator().manual_seed(1)
    count, noise, prior = 200, 0.5, 0.5
    index = torch.arange(count) % 2
    points = torch.nn.functional.one_hot(index, 2).float()
    answers = torch.tensor([1.0, -0.4])[index] + noise * torch.randn(count, generator=random)
    torch.manual_seed(0)
    model = BayesianNetwork([2, 1], prior, noise)
    with torch.no_grad():  # no bias: it would share its say with both weights
        model.means[0][:, -1] = 0.0
        model.rhos[0][:, -1] = -30.0
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(1_500):
        if step == 1_000:
            optimiser.param_groups[0]["lr"] = 0.001
        loss = model.bound(points, answers[:, None], model.draw(8, random), count)
        optimiser.zero_grad()
        loss.backward()
        for parameters in (model.means, model.rhos):
            parameters[0].grad[:, -1] = 0.0
        optimiser.step()
    precision = 1.0 / prior**2 + (count / 2) / noise**2
    expected = torch.stack([answers[index == k].sum() for k in range(2)]) / noise**2 / precision
    assert torch.allclose(model.means[0][0, :2], expected, atol=0.02)
    assert torch.allclose(model.deviations()[0][0, :2], torch.full((2,), precision**-0.5), rtol=0.15)


def test_a_batch_at_once_is_each_transition_alone():
    random = torch.Generator().manual_seed(2)
    model = BayesianNetwork([3, 5, 4, 2], prior=0.5, noise=0.5)
    noise = model.draw(7, random)
    points, answers = torch.randn(6, 3, generator=random), torch.randn(6, 2, generator=random)
    together = model.information_gain(points, answers, noise)
    for one in range(6):
        weights = [mean + dev * eps for mean, dev, eps in zip(model.means, model.deviations(), noise, strict=True)]
        weights = [weight.detach().requires_grad_() for weight in weights]
        value = points[one].expand(7, 1, 3)
        for layer, weight in enumerate(weights):
            value = torch.cat([value if not layer else value.relu(), torch.ones(7, 1, 1)], 2) @ weight.transpose(1, 2)
        likelihood = -0.5 * (answers[one] - value).square().sum() / 0.5**2
        gain = torch.zeros(())
        for gradient, dev, eps in zip(torch.autograd.grad(likelihood, weights), model.deviations(), noise, strict=True):
            by_mean, by_draw = gradient.mean(0), (gradient * eps).mean(0)
            gain = gain + 0.5 * (dev.square() * (by_mean.square() + 0.5 * by_draw.square())).sum()
        assert together[one].item() == pytest.approx(gain.item(), rel=1e-4)


def test_what_is_well_known_teaches_less():
    """The world adds the action; the model is shown that, and then asked about a place where it does not."""
    random = torch.Generator().manual_seed(3)
    bonus = make_bonus("vime", VECTOR, CONTINUOUS, learning_rate=3e-3)
    for _ in range(15):
        obs = 0.5 * torch.rand(100, 4, 2, generator=random)
        action = torch.rand(100, 4, 2, generator=random) - 0.5
        _, metrics = bonus.observe(Batch.of(obs, action, obs + 0.1 * action))
    scores = bonus.score(Batch.of(obs, action, obs + 0.1 * action))
    wrong = bonus.score(Batch.of(obs, action, obs - 0.1 * action))
    assert wrong.mean() > 3 * scores.mean()
    assert metrics["divergence"] > 0


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(UsageError, match="prior"):
        make_bonus("vime", VECTOR, CONTINUOUS, prior=0.0)
    with pytest.raises(UsageError, match="hidden"):
        make_bonus("vime", VECTOR, CONTINUOUS, hidden=[0])


def test_scores_are_gains_divided_by_the_mean_of_the_last_medians():
    bonus = make_bonus("vime", VECTOR, CONTINUOUS, steps=2)
    for seed in range(3):
        batch = make_batch((VECTOR, CONTINUOUS), seed=seed)
        bonus.observe(batch)
    assert len(bonus.medians) == 3
    gains = bonus._gains(bonus._triples(batch))
    assert torch.allclose(bonus.score(batch)[batch.mask], gains / (sum(bonus.medians) / 3))
    before = list(bonus.medians)
    metrics = bonus.prepare(make_batch((VECTOR, CONTINUOUS), seed=9))
    assert bonus.medians == [*before, metrics["median_gain"]]
