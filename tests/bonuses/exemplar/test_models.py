"""What the exemplar models promise beyond the contract and the closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from conftest import CONTINUOUS, IMAGE, SPACES, VECTOR, make_batch
from ex2 import Batch, UsageError, make_bonus
from ex2.bonuses.exemplar.amortized import AmortizedExemplar
from ex2.bonuses.exemplar.k_exemplar import KExemplar
from ex2.bonuses.exemplar.kernel import rank_correlation
from ex2.training.presets.paper import AMORTIZED, K_EXEMPLAR


def test_9_latent_noise_comes_from_its_own_encoder():
    """Nothing of one encoder reaches the other's mean or log variance."""
    model = AmortizedExemplar(VECTOR, CONTINUOUS)
    for name, other in (("state", "exemplar"), ("exemplar", "state")):
        for output in getattr(model.networks, name)(torch.randn(8, 2)):
            model.networks.zero_grad()
            output.sum().backward(retain_graph=True)
            assert all(parameter.grad is None for parameter in getattr(model.networks, other).parameters())
            assert getattr(model.networks, name).trunk[0].weight.grad.abs().sum() > 0


def test_both_encoders_pay_for_information():
    model = AmortizedExemplar(VECTOR, CONTINUOUS, kl_weight=1.0)
    for name in ("state", "exemplar"):
        with torch.no_grad():
            before = model.loss(torch.zeros(64, 2), torch.zeros(64, 2))[1]
            getattr(model.networks, name).mean.bias += 3.0
            after = model.loss(torch.zeros(64, 2), torch.zeros(64, 2))[1]
        assert after - before > 10.0


def test_10_collapse_is_reported_and_warned_of():
    pair, batch = SPACES["vector-continuous"], make_batch(SPACES["vector-continuous"])
    model = make_bonus("amortized", *pair, state_noise=0.0, kl_weight=100.0, steps=400, learning_rate=1e-2, pairs=64)
    model.remember(batch)
    with pytest.warns(UserWarning, match="collapsed to D = 1/2"):
        metrics = model.prepare(batch)
    assert metrics["undecided"] > 0.95


def test_10_saturation_is_reported_and_warned_of():
    far = torch.full((30, 4, 2), 0.9)
    model = make_bonus("amortized", *SPACES["vector-continuous"], kl_weight=0.0, steps=500, learning_rate=1e-2, pairs=64)
    model.remember(Batch.of(-far, -far, -far))
    with pytest.warns(UserWarning, match="sure of every state"):
        metrics = model.prepare(Batch.of(far, far, far))
    assert metrics["saturated"] > 0.95


def test_samples_or_the_latent_mean():
    """E_q[D(z)] settles as draws are added; the latent mean needs none."""
    batch = make_batch(SPACES["vector-continuous"])
    answers = {}
    for samples in (0, 1, 400, 800):
        model = AmortizedExemplar(*SPACES["vector-continuous"], **AMORTIZED | {"samples": samples}, kl_weight=0.01, steps=50)
        model.observe(batch)
        answers[samples] = torch.sigmoid(-model.log_density(model.inputs.rows(batch).flatten(0, 1)))
    assert (answers[400] - answers[800]).abs().max() < 0.02
    assert (answers[1] - answers[800]).abs().max() > 0.02
    assert not torch.equal(answers[0], answers[800])


def test_the_papers_sizes():
    small, large = (AmortizedExemplar(space, CONTINUOUS, metric="learned") for space in (VECTOR, IMAGE))
    assert [tuple(p.shape) for p in small.networks.state.trunk.parameters()][::2] == [(32, 2), (32, 32)]
    assert small.networks.state.mean.out_features == 16
    convolutions = [m for m in large.networks.state.stem.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size, c.stride) for c in convolutions] == [(16, (4, 4), (2, 2))] * 2
    assert large.networks.state.mean.out_features == 32
    trunk = KExemplar(VECTOR, CONTINUOUS, **K_EXEMPLAR).networks
    assert [m.out_features for m in trunk if isinstance(m, torch.nn.Linear)] == [16, 16]


def test_learning_rates_of_trunk_and_heads():
    model = KExemplar(VECTOR, CONTINUOUS)
    assert model.learner.optimiser.param_groups[0]["lr"] == 5e-4
    assert model.settings.head_learning_rate == 1e-3


def test_partly_filled_groups_give_the_density_of_their_states():
    """Three states in groups of two: the last stands alone, and its density is that of a single exemplar."""
    batch = make_batch(SPACES["vector-continuous"], 3, 1)
    rest = make_batch(SPACES["vector-continuous"], 200, 4, seed=1)
    pairs, single = (
        KExemplar(*SPACES["vector-continuous"], k=k, metric="learned", state_noise=0.0, latent_noise=0.0, steps=1)
        for k in (2, 1)
    )
    for model in (pairs, single):
        model.remember(rest)
    assert torch.allclose(pairs.log_density_of_batch(batch)[2], single.log_density_of_batch(batch)[2], atol=0.1)


@pytest.mark.slow
def test_densities_follow_visits():
    """On a plain mixture in the plane both models' log densities follow the true one."""
    random = np.random.default_rng(0)
    centres = np.array([[-0.6, -0.6], [0.6, 0.6], [-0.6, 0.6]])
    shares = np.array([0.7, 0.25, 0.05])

    def draw(count):
        return (centres[random.choice(3, count, p=shares)] + random.normal(0, 0.1, (count, 2))).clip(-1, 1).astype(np.float32)

    background, new = draw(20_000).reshape(-1, 4, 2), draw(2_000).reshape(-1, 4, 2)
    flat = torch.as_tensor(new.reshape(-1, 2))
    squares = ((flat[:, None] - torch.as_tensor(centres)) ** 2).sum(-1) / (2 * 0.1**2)
    true = torch.logsumexp(torch.as_tensor(shares).log() - squares, 1)
    settings = {"state_noise": 0.1, "gain": 3.0}
    for name, own in (
        ("amortized", {"steps": 1_500, "learning_rate": 3e-3, "kl_weight": 1e-4}),
        ("k-exemplar", {"k": 1, "steps": 200, "hidden": 32, "latent_noise": 0.0}),
    ):
        model = make_bonus(name, VECTOR, CONTINUOUS, **settings, **own)
        model.remember(Batch.of(background, background, background))
        model.prepare(Batch.of(new, new, new))
        assert np.corrcoef(model.log_density(flat), true)[0, 1] > 0.6, name


@pytest.mark.parametrize("name", [pytest.param("amortized", marks=pytest.mark.slow), "k-exemplar"])
def test_as_they_come_they_order_states_by_how_rare_they_are(name):
    """In 30 numbers that hold 2, with states that were never seen: farther out, and outside of all that was seen."""
    random = np.random.default_rng(0)
    lead = random.normal(size=(2, 30))
    bonus = make_bonus(name, spaces.Box(-np.inf, np.inf, (30,)), CONTINUOUS)

    def batch(latent, off=0.0):
        x = (latent @ lead + off * random.normal(size=(len(latent), 30))).astype(np.float32).reshape(-1, 32, 30)
        return Batch.of(x, np.zeros((*x.shape[:2], 2), np.float32), x)

    for _ in range(3):
        latent = random.normal(size=(1_024, 2))
        scores, _ = bonus.observe(batch(latent))
    rarity = torch.as_tensor((latent**2).sum(1))
    assert rank_correlation(scores.flatten(), rarity) > 0.7
    far = latent / np.linalg.norm(latent, axis=1, keepdims=True)
    for unseen in (batch(6.0 * far), batch(latent, off=1.0)):
        assert bonus.score(unseen).median() > scores.quantile(0.9)


def test_a_metric_fitted_anew_begins_anew():
    bonus, pair = make_bonus("amortized", *SPACES["vector-continuous"], steps=2, first_steps=3), SPACES["vector-continuous"]
    for seed in range(6):
        bonus.observe(make_batch(pair, seed=seed))
        if bonus.fitted:
            assert len(bonus.background) == len(bonus.replay)
    assert bonus.held.seen == 720
    assert bonus.held.seen_at_fit == 480  # what was seen before the batch at which it was fitted


def test_scattered_exemplars_teach_the_comparison_what_nobody_visited():
    """Trained on one place only, the model calls far places novel, all of them; the place itself is the most familiar."""
    near = np.random.default_rng(0).normal([-0.5, -0.5], 0.1, (200, 4, 2)).astype(np.float32)
    settings = {"gain": 3.0, "steps": 600, "learning_rate": 3e-3, "kl_weight": 1e-4}
    model = AmortizedExemplar(
        VECTOR, CONTINUOUS, scatter=0.25, state_noise=1.0, **settings
    )  # 0.1, in deviations of what is seen
    model.remember(Batch.of(near, near, near))
    model.prepare(Batch.of(near, near, near))
    far = torch.tensor([[0.5, 0.5], [0.7, -0.4], [-0.5, 0.6], [0.0, 0.3]])
    assert model.log_density(far).max() < model.log_density(torch.tensor([[-0.5, -0.5]])).item() - 2.0


def test_settings_that_cannot_work_are_refused():
    for scatter in (-0.1, 1.5):
        with pytest.raises(UsageError, match="scatter"):
            AmortizedExemplar(VECTOR, CONTINUOUS, scatter=scatter)
    with pytest.raises(UsageError, match="scatter"):
        AmortizedExemplar(IMAGE, CONTINUOUS, metric="learned", scatter=0.5)
    with pytest.raises(UsageError, match="k=0"):
        KExemplar(VECTOR, CONTINUOUS, k=0)
    with pytest.raises(UsageError, match="ridge"):
        KExemplar(VECTOR, CONTINUOUS, ridge=0.0)
    with pytest.raises(UsageError, match="steps=0"):
        AmortizedExemplar(VECTOR, CONTINUOUS, steps=0)
    with pytest.raises(UsageError, match="state_noise"):
        AmortizedExemplar(IMAGE, CONTINUOUS, metric="learned", state_noise=0.1)
    with pytest.raises(UsageError, match="metric"):
        KExemplar(VECTOR, CONTINUOUS, metric="fixd")
