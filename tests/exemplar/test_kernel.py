"""The closed-form exemplar model against its closed form, and automatic smoothing."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from conftest import CONTINUOUS, IMAGE, SPACES, UNBOUNDED, VECTOR, make_batch
from ex2 import Batch, ExemplarDensity, UsageError, make_bonus
from ex2.exemplar import propositions
from ex2.exemplar.features import Features
from ex2.exemplar.kernel import KernelExemplar
from ex2.exemplar.smoothing import information_rate, sigma_of_rate, target_rate


def places(rows: np.ndarray | torch.Tensor, envs: int = 4) -> Batch:
    obs = torch.as_tensor(rows, dtype=torch.float32).reshape(-1, envs, np.shape(rows)[-1])
    return Batch.of(obs, torch.zeros(*obs.shape[:2], 2), obs)


def gaussian(count: int, seed: int = 0, scale: float = 0.25) -> torch.Tensor:
    return scale * torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))


def true_log_density(points: torch.Tensor, sigma: float, scale: float = 0.25) -> torch.Tensor:
    variance = scale**2 + sigma**2
    return -points.square().sum(1) / (2 * variance) - math.log(2 * math.pi * variance)


def test_the_loss_is_least_at_the_closed_form():
    """With u = log (P * q) in place of the network, no shift, tilt or bump of it has a lower loss, whatever the odds."""
    sigma, count = 0.15, 4_096
    model = KernelExemplar(VECTOR, CONTINUOUS, state_noise=sigma)
    true = lambda x: true_log_density(x, sigma)  # noqa: E731
    others = {
        "shifted up": lambda x: true(x) + 0.3,
        "shifted down": lambda x: true(x) - 0.3,
        "flattened": lambda x: 0.5 * true(x) + 0.5 * true(torch.zeros(1, 2)),
        "bumped": lambda x: true(x) + 1.0 * (x.norm(dim=1) < 0.2),
    }
    exemplars, background = gaussian(count), gaussian(count, seed=1)
    noise = sigma * torch.randn(2, count, 2, generator=torch.Generator().manual_seed(2))
    drawn = (exemplars, exemplars + noise[0], background + noise[1], torch.tensor(sigma))

    class Fixed(torch.nn.Module):
        def forward(self, points):
            return self.function(points)

    for log_odds in (0.0, 1.5):
        losses = {}
        for name, function in {"true": true, **others}.items():
            model.networks.log_density = fixed = Fixed()
            fixed.function, fixed.held_odds = function, torch.tensor(log_odds)
            with torch.no_grad():
                losses[name] = model.loss(*drawn)[0].item()
        assert min(losses, key=losses.get) == "true", losses


def test_all_pairs_are_the_optimal_discriminators():
    """The logits of a trained model are those of the paper's noisy optimal discriminator, pair by pair."""
    sigma = 0.15
    model = KernelExemplar(VECTOR, CONTINUOUS, state_noise=sigma, first_steps=600)
    model.remember(places(gaussian(20_000)))
    model.fit(places(gaussian(2_000, seed=1)))
    exemplars, states = gaussian(50, seed=2), gaussian(60, seed=3)
    with torch.no_grad():
        _, _, logits = model.loss(exemplars, exemplars, states, torch.tensor(sigma))
    found = torch.sigmoid(logits + model.networks.log_density.held_odds)
    kernel = -torch.cdist(exemplars, states).square() / (2 * sigma**2) + propositions.log_kernel_peak(sigma, 2)
    expected = propositions.optimal_discriminator(kernel, true_log_density(states, sigma).expand_as(kernel))
    assert (found - expected).abs().mean() < 0.02


def test_log_density_is_normalised():
    sigma = 0.1
    model = KernelExemplar(VECTOR, CONTINUOUS, state_noise=sigma, first_steps=800)
    model.remember(places(gaussian(20_000)))
    model.fit(places(gaussian(2_000, seed=1)))
    points = gaussian(500, seed=2)
    found = model.log_density(points) + propositions.log_kernel_peak(sigma, 2)
    true = true_log_density(points, sigma)
    assert np.corrcoef(found, true)[0, 1] > 0.98
    assert (found - true).mean().abs() < 0.1
    assert 0.85 < np.polyfit(true, found, 1)[0] < 1.15


@pytest.mark.parametrize("sigma", [0.02, 0.3])
def test_odds_are_balanced_and_tell_the_information_rate(sigma):
    """D is about 1/2 at the exemplars, narrow kernel or wide; log nu is the mutual information, known for a Gaussian."""
    settings = {"remembered": 0.0, "scatter": 0.0}
    model = KernelExemplar(VECTOR, CONTINUOUS, state_noise=sigma, first_steps=800, **settings)
    model.remember(places(gaussian(20_000)))
    metrics = model.fit(places(gaussian(4_000, seed=1)))
    assert metrics["information_rate"] == pytest.approx(math.log1p((0.25 / sigma) ** 2), abs=0.25)
    assert 0.25 < metrics["accuracy_positive"] < 0.85
    assert metrics["collapsed"] == 0.0


def test_what_nobody_visited_is_novel():
    model = KernelExemplar(VECTOR, CONTINUOUS, first_steps=600)
    near = torch.tensor([-0.5, -0.5]) + gaussian(4_000, scale=0.1)
    for _ in range(3):
        model.observe(places(near))
    far = torch.tensor([[0.5, 0.5], [0.7, -0.4], [-0.5, 0.6], [0.0, 0.3]])
    assert model.log_density(far).max() < model.log_density(near).median() - 2.0


def test_information_rate_of_a_gaussian():
    """I = d/2 log(1 + s^2 / sigma^2) for Gaussian data; the scale that is found for a rate has it."""
    generator = torch.Generator().manual_seed(0)
    for dimensions in (2, 8):
        points = torch.randn(2_048, dimensions, generator=generator)
        noise = torch.randn(512, dimensions, generator=generator)
        for sigma in (0.5, 1.0):
            exact = dimensions / 2 * math.log1p(sigma**-2)
            assert information_rate(points, sigma, noise) == pytest.approx(exact, rel=0.15)
        sigma = sigma_of_rate(points, 2.0, generator)
        assert dimensions / 2 * math.log1p(sigma**-2) == pytest.approx(2.0, abs=0.4)


@pytest.mark.parametrize("rate", [0.5, 3.0, 50.0])
@pytest.mark.parametrize("points", ["all the same", "two places", "wide"])
def test_automatic_noise_is_always_a_number(points, rate):
    rows = {
        "all the same": torch.ones(50, 3),
        "two places": torch.eye(3)[torch.arange(50) % 2],
        "wide": 1e4 * torch.randn(50, 3),
    }
    sigma = sigma_of_rate(rows[points], rate, torch.Generator().manual_seed(0))
    assert 1e-3 <= sigma <= 1e6
    if points == "two places":  # log 2 nats in all, of which no more than 0.8 are asked for: they must stay apart
        noise = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
        assert 0.2 < information_rate(rows[points], sigma, noise) < 0.66


@pytest.mark.parametrize("count", [5, 16, 64])
def test_tables_are_counted(count):
    """In a discrete space, where automatic smoothing could ask for more nats than there are, log p follows the counts."""
    random = np.random.default_rng(0)
    index = random.choice(count, (2_000, 4), p=random.dirichlet(np.full(count, 0.5)))
    model = make_bonus("kernel-exemplar", spaces.Discrete(count), CONTINUOUS)
    batch = Batch.of(index, np.zeros((2_000, 4, 2)), index)
    for _ in range(3):
        scores, metrics = model.observe(batch)
    visits = np.bincount(index.flatten(), minlength=count)[index]
    assert metrics["recoveries"] == 0.0
    assert np.corrcoef(scores.flatten(), -np.log(visits).flatten())[0, 1] > 0.8


def test_redundant_features():
    """Twelve features that are two in truth: the Gaussian that u starts from knows how they hang together."""
    random = np.random.default_rng(0)
    mixing = random.normal(size=(2, 12))
    data, asked = (random.normal(size=(count, 2)) for count in (4_000, 300))
    density = ExemplarDensity(random_state=0).fit(data @ mixing)
    assert np.corrcoef(density.score_samples(asked @ mixing), -(asked**2).sum(1))[0, 1] > 0.9


def test_a_first_batch_that_says_nothing():
    """All states alike at first: the kernel and the sines find their width when there is something to see."""
    model = KernelExemplar(VECTOR, CONTINUOUS, first_steps=300)
    for _ in range(2):
        model.observe(places(torch.zeros(400, 2)))
    for seed in range(25):
        model.observe(places(gaussian(400, seed=seed)))
    points = gaussian(300, seed=99)
    assert np.corrcoef(model.log_density(points), true_log_density(points, model.sigma))[0, 1] > 0.85


def test_automatic_noise_follows_what_is_seen():
    """It grows with the reach of the states, shrinks as they become many, and not because an agent settles in one place."""
    bounded = KernelExemplar(VECTOR, CONTINUOUS, first_steps=5, steps=5, replay_capacity=4_000)
    noises = []
    for scale in (0.05, 0.05, 0.3, 0.3, 0.3, 0.3, 0.002, 0.002, 0.002, 0.002):
        bounded.observe(places(gaussian(2_000, seed=len(noises), scale=scale)))
        noises.append(bounded.sigma)
    assert noises[0] == 0.0  # nothing was held yet
    assert noises[5] > 1.1 * noises[1]
    assert noises[-1] >= noises[5]  # the FIFO was full all along
    few, many = (target_rate(count) for count in (100, 10_000))
    assert math.exp(many) == pytest.approx(math.exp(few) ** 2)


@pytest.mark.parametrize("rate", [1.5, 5.0])
def test_an_automatic_kl_weight_holds_its_rate(rate):
    """Whatever rate is asked for, the mean KL of the encoders comes to it: neither collapsed nor free."""
    settings = {"kl_weight": "auto", "information_rate": rate, "steps": 1_500, "learning_rate": 3e-3, "gain": 3.0}
    model = make_bonus("amortized", VECTOR, CONTINUOUS, **settings)
    model.remember(places(gaussian(2_000)))
    metrics = model.fit(places(gaussian(2_000, seed=1)))
    assert metrics["kl"] / 2 == pytest.approx(rate, rel=0.3)
    assert metrics["collapsed"] == 0.0


def test_collapse_is_recovered_from():
    """Held at a KL weight that is far too dear the amortized model collapses; after some fits it begins anew with a tenth."""
    batch = make_batch(SPACES["vector-continuous"], 200, 4)
    model = make_bonus("amortized", *SPACES["vector-continuous"], kl_weight="auto", steps=150, learning_rate=1e-2, pairs=64)
    model.remember(batch)
    with torch.no_grad():
        model.networks.log_kl_weight.fill_(0.0)
        for parameter in model.networks.discriminator.parameters():
            parameter.zero_()
    metrics = [model.fit(batch)]
    assert metrics[0]["collapsed"] == 1.0
    while metrics[-1]["collapsed"] and len(metrics) < 20:
        model.networks.log_kl_weight.clamp_(min=0.0 if model.recoveries == 0 else None, max=0.0)
        metrics.append(model.fit(batch))
    assert metrics[-1]["recoveries"] == 1.0
    assert metrics[-1]["collapsed"] == 0.0
    assert metrics[-1]["kl_weight"] < metrics[0]["kl_weight"]


def test_a_loss_that_is_no_number_is_recovered_from():
    model = KernelExemplar(VECTOR, CONTINUOUS, first_steps=20, steps=20)
    model.observe(places(gaussian(400)))
    model.observe(places(gaussian(400)))
    with torch.no_grad():
        model.networks.log_density.head.weight.fill_(float("nan"))
    assert model.fit(places(gaussian(400)))["collapsed"] == 1.0
    metrics = model.fit(places(gaussian(400)))
    assert math.isfinite(metrics["loss"])
    assert torch.isfinite(model.log_density(gaussian(50))).all()


def test_early_stopping_ends_a_fit_that_has_settled():
    for name in ("kernel-exemplar", "amortized", "k-exemplar"):
        taken = []
        for tolerance in (0.0, 1e-9, 100.0):
            model = make_bonus(name, VECTOR, CONTINUOUS, steps=50, first_steps=50, state_noise=0.1, tolerance=tolerance)
            model.remember(places(gaussian(400)))
            step, count = model._step, []
            model._step = lambda *a, step=step, count=count: count.append(1) or step(*a)
            model.fit(places(gaussian(400, seed=1)))
            taken.append(len(count))
        assert taken[0] == 50, name
        assert taken[1] > 20 or name == "k-exemplar"  # a young network learns on held-out states, too
        assert taken[2] == 20, name


def moving_dot(count: int, steps: int, noisy: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Short films [steps, count, 16, 16, 3] of a dot that drifts, and its position; the rest changes at random if noisy."""
    random = np.random.default_rng(seed)
    start = np.where(random.random((count, 1)) < 0.8, 0.3, 0.7) + random.normal(0, 0.05, (count, 2))
    position = start + np.cumsum(random.normal(0, 0.01, (steps, count, 2)), 0)
    pixel = (np.arange(16) + 0.5) / 16
    near = np.exp(-0.5 * ((pixel - position[..., :1]) / 0.1) ** 2)[:, :, None, :]
    near = near * np.exp(-0.5 * ((pixel - position[..., 1:]) / 0.1) ** 2)[..., None]
    behind = random.random((steps, count, 16, 16, 3)) if noisy else np.full((16, 16, 3), 0.5)
    images = near[..., None] * [1.0, 0.8, 0.1] + (1 - near[..., None]) * 0.6 * behind
    return (255 * images).astype(np.uint8), position


@pytest.mark.parametrize(("noisy", "projection"), [(False, "variance"), (True, "neighbours")])
def test_images_by_what_is_on_them(noisy, projection):
    """Four times out of five the dot is in one place; the density of pictures follows the density of places."""
    model = make_bonus("kernel-exemplar", IMAGE, CONTINUOUS, projection=projection, components=8, first_steps=500)
    films, _ = moving_dot(300, 6, noisy)
    batch = Batch.of(films, np.zeros((6, 300, 2)), films)
    model.remember(batch)
    model.fit(batch)
    films, position = moving_dot(300, 1, noisy, seed=1)
    log_density = model.log_density(torch.as_tensor(films).flatten(0, 1).flatten(1)).numpy()
    often = position[0, :, 0] < 0.5
    assert log_density[often].mean() > log_density[~often].mean() + 0.5


def test_neighbours_need_time():
    model = make_bonus("kernel-exemplar", IMAGE, CONTINUOUS, projection="neighbours")
    films, _ = moving_dot(20, 1, False)
    batch = Batch.of(films, np.zeros((1, 20, 2)), films)
    model.remember(batch)
    with pytest.raises(UsageError, match="adjacent in time"):
        model.fit(batch)


def test_features_of_many_sizes():
    for shape in ((8, 8, 1), (32, 32, 3), (3, 32, 32), (4, 84, 84), (84, 84, 1), (60, 80, 3)):
        model = KernelExemplar(spaces.Box(0, 255, shape, np.uint8), CONTINUOUS)
        rows = torch.randint(256, (40, math.prod(shape)), dtype=torch.uint8)
        model.networks.features.fit(rows, rows[:0, None].repeat(1, 2, 1))
        seen = model.networks.features(rows)
        assert seen.shape == (40, 16), shape
        assert seen.square().mean() == pytest.approx(1.0, abs=0.1)


def test_settings_that_cannot_work_are_refused():
    for wrong, named in (
        ({"state_noise": 0.0}, "state_noise"),
        ({"state_noise": "much"}, "much"),
        ({"state_noise": -1.0}, "state_noise"),
        ({"scatter": 0.8, "remembered": 0.4}, "scatter"),
        ({"scatter": 1.0, "remembered": 0.0}, "scatter"),
        ({"hidden": 0}, "hidden"),
        ({"schedule": "cosine"}, "cosine"),
        ({"information_rate": 0.0}, "information_rate"),
        ({"features": "deep"}, "deep"),
        ({"projection": "random"}, "random"),
        ({"components": 0}, "components"),
    ):
        with pytest.raises(UsageError, match=named):
            make_bonus("kernel-exemplar", IMAGE, CONTINUOUS, **wrong)
    with pytest.raises(UsageError, match="kl_weight"):
        make_bonus("amortized", VECTOR, CONTINUOUS, kl_weight="some")
    with pytest.raises(UsageError, match="too small"):
        Features(make_bonus("none", spaces.Box(0, 255, (6, 6, 3), np.uint8), CONTINUOUS).inputs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["kernel-exemplar", "amortized"])
def test_captured_steps_are_the_same_steps(name):
    """On a GPU: the same densities as on the CPU up to rounding, and a run that was saved and loaded goes on the same."""
    batches = [places(gaussian(400, seed=seed)) for seed in range(6)]
    settings = {"state_noise": 0.1, "steps": 20, "first_steps": 20, "schedule": "one-cycle"}
    cpu, gpu, loaded = (make_bonus(name, VECTOR, CONTINUOUS, device=d, **settings) for d in ("cpu", "cuda", "cuda"))
    for batch in batches[:3]:
        cpu.observe(batch)
        gpu.observe(batch)
    assert torch.allclose(cpu.log_density(gaussian(50)), gpu.log_density(gaussian(50)), atol=0.05)
    loaded.load_state_dict(copy.deepcopy(gpu.state_dict()))
    for batch in batches[3:]:
        assert torch.allclose(gpu.observe(batch)[0], loaded.observe(batch)[0], atol=0.05)


def test_a_state_counts_as_a_hundredth_of_a_visit_at_the_least():
    """Where nobody has been, u has no lower bound; the bonus has one."""
    model = KernelExemplar(UNBOUNDED, CONTINUOUS, min_replay=50, first_steps=50, steps=5)
    batch = make_batch((UNBOUNDED, CONTINUOUS))
    for _ in range(3):
        model.observe(batch)
    far = Batch.of(1e3 * torch.ones_like(batch.obs), batch.action, batch.next_obs)
    assert model.log_density(model.inputs.rows(far)[0]).max() < -100
    assert model.score(far).unique().item() == pytest.approx(math.log(len(model.replay) / 0.01), rel=1e-5)
