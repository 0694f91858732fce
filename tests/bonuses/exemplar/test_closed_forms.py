"""The optima of the paper, in closed form, against models that were trained."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Independent, Normal, kl_divergence

from conftest import CONTINUOUS, VECTOR
from ex2 import Batch
from ex2.bonuses.exemplar import propositions
from ex2.bonuses.exemplar.amortized import AmortizedExemplar
from ex2.bonuses.exemplar.k_exemplar import KExemplar
from ex2.bonuses.exemplar.smoothing import gaussian_kl
from ex2.training.presets.paper import AMORTIZED

PROBABILITIES = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
LITERAL = {"metric": "learned", "state_noise": 0.0, "latent_noise": 0.0, "newton_steps": 8}  # heads on states as they are
STATES = spaces.Discrete(len(PROBABILITIES))


def states(index: torch.Tensor) -> Batch:
    return Batch.of(index[:, None], torch.zeros(len(index), 1, 2), index[:, None])


def background(count: int = 20_000) -> Batch:
    """As many visits to each state as its probability says, to the visit."""
    return states(torch.repeat_interleave(torch.arange(len(PROBABILITIES)), (PROBABILITIES * count).round().long()))


@pytest.mark.parametrize("k", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 3))])
def test_k_exemplar_optimum_on_a_discrete_distribution(k):
    """Trained on a discrete distribution, D at an exemplar is 1 / (1 + K p)."""
    model = KExemplar(STATES, CONTINUOUS, k=k, **LITERAL, ridge=1e-6, steps=200, newton_negatives=40_000)
    model.remember(background())
    exemplars = states(torch.arange(len(PROBABILITIES)))
    model.prepare(exemplars)
    rows = model.inputs.rows(exemplars).flatten(0, 1)
    found = model.discriminate(rows[exemplars.groups(k)]).flatten()
    assert torch.allclose(found, propositions.optimal_discriminator_at_exemplar(PROBABILITIES, k), atol=0.015)
    density = model.log_density_of_batch(exemplars).flatten().exp()
    assert torch.allclose(density, PROBABILITIES, rtol=0.12)


def test_heads_trained_by_gradient_steps_reach_the_same_optimum():
    """The paper's way, Adam on a head, and Newton's agree: both are the cross-entropy's one optimum."""
    model = KExemplar(STATES, CONTINUOUS, k=1, **LITERAL, ridge=1e-6, steps=1, newton_negatives=40_000)
    model.remember(background())
    exemplars = model.inputs.rows(states(torch.arange(len(PROBABILITIES))))
    with torch.no_grad():
        every = model.networks(exemplars.flatten(0, 1))
    heads = torch.zeros(len(PROBABILITIES), every.shape[1] + 1, requires_grad=True)
    features = torch.nn.functional.pad(every, (0, 1), value=1.0)
    optimiser = torch.optim.Adam([heads], 0.3)
    for step in range(3_000):
        logits = features @ heads.T  # [state, head]
        losses = torch.nn.functional.softplus(-logits.diagonal()) + PROBABILITIES @ torch.nn.functional.softplus(logits)
        optimiser.zero_grad()
        losses.sum().backward()
        optimiser.param_groups[0]["lr"] = 0.3 * (1 - step / 3_000)
        optimiser.step()
    found = torch.sigmoid((features @ heads.T).diagonal()).detach()
    assert torch.allclose(found, propositions.optimal_discriminator_at_exemplar(PROBABILITIES), atol=0.01)
    assert torch.allclose(found, model.discriminate(exemplars.flatten(0, 1)[:, None]).flatten(), atol=0.015)


def test_one_discriminator_for_all_states():
    """K = all: with the new states distributed as the old ones nothing can be told apart, and D = 1/2."""
    model = KExemplar(STATES, CONTINUOUS, k=None, **LITERAL, steps=50, newton_negatives=20_000)
    model.remember(background())
    new = background(400)
    model.prepare(new)
    rows = model.inputs.rows(new).flatten(0, 1)
    assert torch.allclose(model.discriminate(rows[model.grouped(new)]), torch.tensor(0.5), atol=0.03)


@pytest.mark.slow
def test_amortized_optimum_on_a_discrete_distribution():
    """The amortized comparator reaches 1 / (1 + p) too, for all exemplars at once."""
    settings = {**AMORTIZED, "kl_weight": 0.0, "steps": 1_500, "learning_rate": 3e-3, "samples": 0, "pairs": 256}
    model = AmortizedExemplar(STATES, CONTINUOUS, **settings)
    model.remember(background())
    exemplars = states(torch.arange(len(PROBABILITIES)))
    model.prepare(exemplars)
    model.learner.rate = 3e-4
    model.prepare(exemplars)
    found = model.discriminate(model.inputs.rows(exemplars).flatten(0, 1))
    assert torch.allclose(found, propositions.optimal_discriminator_at_exemplar(PROBABILITIES), atol=0.04)


@pytest.mark.slow
def test_smoothed_optimum_with_gaussian_noise():
    """P = N(0, s^2 I) and noise sigma in d = 2: D(x*) = q(0) / (q(0) + (P * q)(x*)) with (P * q) = N(0, (s^2 + sigma^2) I)."""
    s, sigma, random = 0.3, 0.3, np.random.default_rng(0)
    settings = {**AMORTIZED, "kl_weight": 0.0, "steps": 1_500, "learning_rate": 3e-3, "gain": 2.0, "samples": 0, "pairs": 256}
    model = AmortizedExemplar(VECTOR, CONTINUOUS, **settings | {"state_noise": sigma / s})  # in deviations of what was seen
    places = random.normal(0.0, s, (5_000, 4, 2)).clip(-1, 1).astype(np.float32)
    model.remember(Batch.of(places, places, places))
    model.prepare(Batch.of(places, places, places))
    model.learner.rate = 5e-4
    model.prepare(Batch.of(places, places, places))
    points = torch.tensor([[0.0, 0.0], [0.3, 0.0], [0.0, -0.3], [0.4, 0.4], [-0.6, 0.2]])
    peak = propositions.log_kernel_peak(sigma, 2)
    smoothed = Independent(Normal(torch.zeros(2), math.sqrt(s**2 + sigma**2)), 1).log_prob(points)
    expected = propositions.optimal_discriminator(torch.full((5,), peak), smoothed)
    assert torch.allclose(model.discriminate(points), expected, atol=0.06)
    assert torch.allclose(model.log_density(points) + peak, smoothed, atol=0.45)


@pytest.mark.slow
def test_noisy_optimal_discriminator():
    """With the encoders held, the discriminator learns q(z|1) / (q(z|1) + q(z|0))."""
    model = AmortizedExemplar(VECTOR, CONTINUOUS, **AMORTIZED | {"pairs": 512, "gain": 2.0}, kl_weight=0.0, latent=2)
    exemplar, others = torch.tensor([[0.2, 0.1]]), torch.tensor([[-0.8, 0.6], [0.7, -0.9]])
    with torch.no_grad():
        model.networks.state.log_variance.bias.fill_(-1.5)
    optimiser = torch.optim.Adam(model.networks.discriminator.parameters(), 3e-3)
    steps = 1_500
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 3e-3 * (1 - step / steps)
        choice = torch.randint(2, (512,), generator=model.generator)
        loss, _, _, _ = model.loss(exemplar.repeat(512, 1), others[choice])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        mean, log_variance = model.networks.state(torch.cat([exemplar, others]))
        latent = Independent(Normal(mean, (0.5 * log_variance).exp()), 1)
        z = latent.sample((300,)).flatten(0, 1)
        own = model.networks.exemplar(exemplar)[0].repeat(len(z), 1)
        found = torch.sigmoid(model.networks.logit(z, own))
        each = latent.log_prob(z[:, None])
        expected = propositions.optimal_discriminator(each[:, 0], torch.logsumexp(each[:, 1:], 1) - math.log(2))
    assert (found - expected).abs().mean() < 0.03


def test_kl_term():
    mean, log_variance = torch.randn(7, 5), torch.randn(7, 5)
    prior, posterior = (Independent(Normal(m, s), 1) for m, s in ((torch.zeros(7, 5), 1.0), (mean, (log_variance / 2).exp())))
    assert torch.allclose(gaussian_kl(mean, log_variance), kl_divergence(posterior, prior), atol=1e-5)


def test_density_and_discriminator_are_inverse():
    p = torch.logspace(-4, 0, 9)
    for k in (1, 5):
        recovered = propositions.log_density(propositions.optimal_discriminator_at_exemplar(p, k), k)
        assert torch.allclose(recovered, p.log(), atol=1e-3)
    assert torch.isfinite(propositions.log_density(torch.tensor([0.0, 1.0]))).all()
