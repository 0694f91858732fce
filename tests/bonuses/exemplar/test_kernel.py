"""The closed-form exemplar model against its closed form, its metric, and automatic smoothing."""

from __future__ import annotations

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy.stats import spearmanr

from conftest import CONTINUOUS, IMAGE, SPACES, UNBOUNDED, VECTOR, make_batch
from ex2 import Batch, ExemplarDensity, UsageError, make_bonus
from ex2.bonuses.exemplar import propositions
from ex2.bonuses.exemplar.features import Features
from ex2.bonuses.exemplar.kernel import KernelExemplar, KernelSum, rank_correlation
from ex2.bonuses.exemplar.smoothing import information_rate, sigma_of_rate, target_rate
from ex2.training.presets.paper import AMORTIZED


def gaussian(count: int, seed: int = 0, scale: float = 0.25) -> torch.Tensor:
    return scale * torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))


def places(points: torch.Tensor) -> Batch:
    return Batch.of(points[:, None], torch.zeros(len(points), 1, 2), points[:, None])


def held(model: KernelExemplar, points: torch.Tensor) -> KernelExemplar:
    """The model with these points in its FIFO, fitted."""
    model.remember(places(points))
    model.prepare(places(points[:400]))
    return model


def test_every_exemplar_has_the_optimal_discriminator():
    """D_{x*}(x) = q(x - x*) / (q(x - x*) + (P * q)(x)), P what is held: log p at x* is that of the D that tells it apart."""
    sigma, states = 0.1, gaussian(30)
    model = held(KernelExemplar(VECTOR, CONTINUOUS, state_noise=sigma, projection="none", kernels=1_000), states)
    points = model.features(states)
    kernel = propositions.log_kernel_peak(sigma, 2) - torch.cdist(points, points).square() / (2 * sigma**2)
    background = kernel.logsumexp(1) - math.log(len(states))
    discriminator = propositions.optimal_discriminator(kernel.diagonal(), background)
    assert torch.allclose(model.log_density(states), propositions.log_density(discriminator), atol=0.02)


def test_cells_change_the_sum_by_little():
    """States that share a cell become one kernel: the sum over thousands of states is that over some hundreds of kernels."""
    points, asked = gaussian(20_000, scale=1.0), gaussian(500, seed=1, scale=1.2)
    some = KernelSum.of(points, 0.3, 10_000, torch.Generator().manual_seed(0))
    every = KernelSum(points, torch.full((len(points), 2), 0.5), 0.3)
    assert len(some.kernels) < 700
    assert some.counts.sum() == len(points)
    assert (some.log_visits(asked) - every.log_visits(asked)).abs().max() < 0.2


def test_never_above_what_the_nearest_state_allows():
    """(P * q)(x) <= q at the distance to the nearest state held: empty space is never dense."""
    points, asked = gaussian(2_000), gaussian(2_000, seed=1, scale=3.0)
    for sigma in (0.003, 0.1, 1.0):
        found = KernelSum.of(points, sigma, 10_000, torch.Generator().manual_seed(0)).log_visits(asked) - math.log(len(points))
        nearest = torch.cdist(asked, points).min(1).values
        near = (nearest - math.sqrt(2) * sigma).clamp_min(0.0)  # as far as a cell may have moved it
        assert (found <= -0.5 * (near / sigma).square() + 1e-3).all()


def test_what_nobody_visited_is_novel_and_the_farther_the_more():
    model = KernelExemplar(VECTOR, CONTINUOUS, form="log")
    near = torch.tensor([-0.5, -0.5]) + gaussian(4_000, scale=0.1)
    for _ in range(3):
        model.observe(places(near))
    ray = torch.tensor([-0.5, -0.5]) + torch.linspace(0.0, 1.4, 15)[:, None] * torch.tensor([1.0, 1.0])
    scores = model.score(places(ray)).flatten()
    assert (scores[3:].diff() > 0).all()
    assert scores[-1] < 60  # below 0.01 visits by a logarithm


def test_what_was_never_seen_pays_1_and_what_was_seen_pays_less_with_every_visit():
    once, often, never = torch.tensor([[0.5, 0.0]]), torch.zeros(99, 2), torch.tensor([[0.0, 0.9]])
    model = held(KernelExemplar(VECTOR, CONTINUOUS, state_noise=0.01, projection="none"), torch.cat([once, often]))
    scores = model.score(places(torch.cat([never, once, often[:1]]))).flatten()
    assert scores.tolist() == pytest.approx([1.0, 2**-0.5, 0.1], rel=0.02)


def test_states_far_outside_are_told_apart_whatever_one_number_once_was():
    """One wild number in one batch, and states 0, 4 and 8 deviations out are still as new as they are."""
    model = make_bonus("kernel-exemplar", UNBOUNDED, CONTINUOUS, form="log")
    random = np.random.default_rng(0)
    for step in range(20):
        obs = random.normal(size=(50, 4, 3)).astype(np.float32)
        if step == 5:
            obs[7, 2, 1] = 1e4
        model.observe(Batch.of(obs, np.zeros((50, 4, 2)), obs))
    asked = np.zeros((3, 1, 3), np.float32)
    asked[:, 0, 1] = [0.0, 4.0, 8.0]
    scores = model.score(Batch.of(asked, np.zeros((3, 1, 2)), asked)).flatten()
    assert scores[1] > scores[0] + 3
    assert scores[2] > scores[1] + 0.5


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


def rank(name: str, space: spaces.Space, draw, batches: int = 5, **settings) -> tuple[float, dict]:
    """The rank correlation of the last batch's scores with its rarity; `draw(random)` gives states [32, 64, ...] and that."""
    model, random = make_bonus(name, space, CONTINUOUS, **settings), np.random.default_rng(0)
    for _ in range(batches):
        obs, rarity = draw(random)
        scores, metrics = model.observe(Batch.of(obs, np.zeros((32, 64, 2)), obs))
    return spearmanr(scores.flatten(), rarity.flatten()).statistic, metrics


@pytest.mark.parametrize("count", [5, 64, 300])
@pytest.mark.parametrize("kind", ["discrete", "one-hot", "bits"])
def test_tables_are_counted(count, kind):
    probabilities = np.random.default_rng(1).dirichlet(np.full(count, 0.5)) + 0.2 / count
    probabilities /= probabilities.sum()
    code = {"one-hot": np.eye(count, dtype=np.float32), "bits": (np.arange(count)[:, None] >> np.arange(9) & 1).astype(np.int8)}
    space = {"discrete": spaces.Discrete(count), "one-hot": spaces.Box(0, 1, (count,)), "bits": spaces.MultiBinary(9)}[kind]

    def draw(random):
        index = random.choice(count, (32, 64), p=probabilities)
        return (index if kind == "discrete" else code[kind][index]), -np.log(probabilities[index])

    found, metrics = rank("kernel-exemplar", space, draw)
    assert metrics["table"] == 1.0
    assert found > 0.93


@pytest.mark.parametrize("width", [12, 120, 700])
def test_bounds_do_not_decide(width):
    """Three latent numbers seen as many, which use a thousandth of their bounds, or all of them."""
    mixing = np.random.default_rng(1).normal(size=(3, width))
    units = np.geomspace(1e-3, 1.0, width)

    def draw(random):
        latent = random.normal(size=(32, 64, 3))
        return (0.2 * units * np.tanh(latent @ mixing / 3)).astype(np.float32), (latent**2).sum(-1)

    found, metrics = rank("kernel-exemplar", spaces.Box(-1, 1, (width,)), draw)
    assert found > 0.9
    assert metrics["agreement"] > 0.8


def test_noise_is_told_from_what_lasts():
    """Ten numbers drawn anew at every step beside two that move slowly."""
    state = {}

    def draw(random):
        position = state.get("position", random.normal(size=(64, 2)))
        steps = []
        for _ in range(32):
            position = 0.9 * position + 0.19**0.5 * random.normal(size=(64, 2))
            steps.append(position)
        state["position"], places = position, np.stack(steps)
        return np.concatenate([places, random.normal(size=(32, 64, 10))], -1).astype(np.float32), (places**2).sum(-1)

    space = spaces.Box(-np.inf, np.inf, (12,))
    assert rank("kernel-exemplar", space, draw)[0] > 0.85
    state.clear()
    assert rank("kernel-exemplar", space, draw, projection="variance")[0] < 0.6  # so it is time that tells them apart


def test_a_direction_nobody_has_gone_in_yet_is_seen():
    """Twenty numbers of which one has never changed so far: when it does, that is new."""
    mixing = np.random.default_rng(1).normal(size=(3, 19))
    model = make_bonus("kernel-exemplar", spaces.Box(-np.inf, np.inf, (20,)), CONTINUOUS)
    random = np.random.default_rng(0)

    def states(last):
        seen = random.normal(size=(32, 64, 3)) @ mixing
        return np.concatenate([seen, np.full((32, 64, 1), last)], -1).astype(np.float32)

    for _ in range(3):
        obs = states(0.0)
        model.observe(Batch.of(obs, np.zeros((32, 64, 2)), obs))
    known, new = (model.score(Batch.of(obs, np.zeros((32, 64, 2)), obs)) for obs in (states(0.0), states(30.0)))
    assert new.min() > known.median()


def test_parts_of_a_dict_weigh_the_same():
    """A picture of hundreds of numbers does not drown two numbers beside it."""
    space = spaces.Dict({"view": spaces.Box(0, 255, (12, 12, 1), np.uint8), "place": spaces.Box(-1, 1, (2,))})
    model, random = make_bonus("kernel-exemplar", space, CONTINUOUS, form="log"), np.random.default_rng(0)

    def states(centre):
        view = random.integers(0, 256, (20, 10, 12, 12, 1)).astype(np.uint8)
        return {"view": view, "place": random.normal(centre, 0.05, (20, 10, 2)).astype(np.float32)}

    for _ in range(4):
        obs = states(-0.5)
        model.observe(Batch.of(obs, np.zeros((20, 10, 2)), obs))
    known, new = (model.score(Batch.of(obs, np.zeros((20, 10, 2)), obs)) for obs in (states(-0.5), states(0.5)))
    assert new.min() > known.max()


def test_it_says_when_it_does_not_know():
    """Asked for too many nats, halves of what was seen do not agree on which states are rare; a warning says so."""
    space = spaces.Box(-np.inf, np.inf, (3,))
    model, random = make_bonus("kernel-exemplar", space, CONTINUOUS, information_rate=6.1), np.random.default_rng(0)
    batches = []
    for _ in range(2):
        obs = random.uniform(-1, 1, size=(32, 64, 3)).astype(np.float32)
        batches.append(Batch.of(obs, np.zeros((32, 64, 2)), obs))
    model.observe(batches[0])
    with pytest.warns(UserWarning, match="do not agree"):
        _, metrics = model.observe(batches[1])
    assert metrics["widened"] == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it says so once
        _, metrics = model.observe(batches[0])
    assert metrics["widened"] == 1.0


def test_redundant_features():
    """Twelve features that are two in truth."""
    random = np.random.default_rng(0)
    mixing = random.normal(size=(2, 12))
    data, asked = (random.normal(size=(count, 2)) for count in (4_000, 300))
    density = ExemplarDensity(random_state=0).fit(data @ mixing)
    assert np.corrcoef(density.score_samples(asked @ mixing), -(asked**2).sum(1))[0, 1] > 0.9


def test_a_first_batch_that_says_nothing():
    """All states alike at first: the metric and the kernel find their scale when there is something to see."""
    model = KernelExemplar(VECTOR, CONTINUOUS)
    for _ in range(2):
        model.observe(places(torch.zeros(400, 2)))
    for seed in range(25):
        model.observe(places(gaussian(400, seed=seed)))
    points = gaussian(300, seed=99)
    assert spearmanr(model.log_density(points), -points.square().sum(1)).statistic > 0.9


def test_automatic_noise_becomes_finer_with_more_states_and_not_because_an_agent_settles():
    model = KernelExemplar(VECTOR, CONTINUOUS, replay_capacity=4_000)
    noises = []
    for scale in (0.3, 0.3, 0.3, 0.3, 0.002, 0.002, 0.002):
        model.observe(places(gaussian(2_000, seed=len(noises), scale=scale)))
        noises.append(model.sigma)
    assert noises[0] == 0.0  # nothing was held yet
    assert noises[2] < noises[1]
    few, many = (target_rate(count) for count in (100, 10_000))
    assert math.exp(many) == pytest.approx(math.exp(few) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1.5, 5.0])
def test_an_automatic_kl_weight_holds_its_rate(rate):
    """Whatever rate is asked for, the mean KL of the encoders comes to it: neither collapsed nor free."""
    settings = {"kl_weight": "auto", "information_rate": rate, "steps": 1_500, "learning_rate": 3e-3, "gain": 3.0}
    model = make_bonus("amortized", VECTOR, CONTINUOUS, **settings)
    model.remember(places(gaussian(2_000)))
    metrics = model.prepare(places(gaussian(2_000, seed=1)))
    assert metrics["kl"] / 2 == pytest.approx(rate, rel=0.3)
    assert metrics["collapsed"] == 0.0


def test_collapse_is_recovered_from():
    """Held at a KL weight that is far too dear the amortized model collapses; after some fits it begins anew with a tenth."""
    batch = make_batch(SPACES["vector-continuous"], 200, 4)
    model = make_bonus(
        "amortized",
        *SPACES["vector-continuous"],
        **AMORTIZED | {"kl_weight": "auto", "steps": 150, "first_steps": None, "learning_rate": 1e-2, "pairs": 64},
    )
    model.remember(batch)
    with torch.no_grad():
        model.networks.log_kl_weight.fill_(0.0)
        for parameter in model.networks.discriminator.parameters():
            parameter.zero_()
    metrics = [model.prepare(batch)]
    assert metrics[0]["collapsed"] == 1.0
    while metrics[-1]["collapsed"] and len(metrics) < 20:
        model.networks.log_kl_weight.clamp_(min=0.0 if model.recoveries == 0 else None, max=0.0)
        metrics.append(model.prepare(batch))
    assert metrics[-1]["recoveries"] == 1.0
    assert metrics[-1]["collapsed"] == 0.0
    assert metrics[-1]["kl_weight"] < metrics[0]["kl_weight"]


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


@pytest.mark.parametrize("noisy", [False, True])
def test_images_by_what_is_on_them(noisy):
    """Four times out of five the dot is in one place; the density of pictures follows the density of places."""
    model = make_bonus("kernel-exemplar", IMAGE, CONTINUOUS)
    for seed in range(2, 6):
        films, _ = moving_dot(300, 6, noisy, seed=seed)
        model.observe(Batch.of(films, np.zeros((6, 300, 2)), films))
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
        model.observe(batch)
    assert len(model.replay) == 20


def test_agreement_is_not_made_of_ties():
    one, other = torch.zeros(512), torch.zeros(512)
    one[3] = other[400] = 1.0
    assert abs(rank_correlation(one, other)) < 0.05
    assert rank_correlation(one, torch.zeros(512)) == 0.0


def test_neighbours_that_say_nothing_leave_the_variance():
    obs = np.random.default_rng(0).normal(size=(50, 4, 20)).astype(np.float32)
    batch = Batch.of(obs, np.zeros((50, 4, 2)), obs)
    model = make_bonus("kernel-exemplar", spaces.Box(-np.inf, np.inf, (20,)), CONTINUOUS, projection="neighbours")
    model.remember(batch)
    assert model.prepare(batch)["directions"] > 0


def test_one_row_of_a_picture_of_any_size_and_numbers_beside_it():
    space = spaces.Dict({"view": spaces.Box(0, 255, (11, 11), np.uint8), "place": spaces.Box(-1, 1, (2,))})
    model = make_bonus("kernel-exemplar", space, CONTINUOUS)
    for seed in range(3):
        random = np.random.default_rng(seed)
        view = random.integers(0, 256, (1, 1, 11, 11)).astype(np.uint8)
        obs = {"view": view, "place": random.normal(size=(1, 1, 2)).astype(np.float32)}
        assert torch.isfinite(model.observe(Batch.of(obs, np.zeros((1, 1, 2)), obs))[0]).all()


def test_features_of_many_sizes():
    for shape in ((1, 1, 1), (7, 7, 3), (8, 8, 1), (32, 32, 3), (3, 32, 32), (4, 84, 84), (84, 84, 1), (60, 80, 3), (20, 30)):
        inputs = make_bonus("none", spaces.Box(0, 255, shape, np.uint8), CONTINUOUS).inputs
        features, generator = Features(inputs), torch.Generator().manual_seed(0)
        rows = torch.randint(256, (40, math.prod(shape)), dtype=inputs.dtype, generator=generator)
        features.fit(rows, rows[:0, None].repeat(1, 2, 1), generator)
        seen = features(rows)
        active = (features.directions != 0).any(0).sum()
        assert seen.shape == (40, min(math.prod(shape), 16) + (math.prod(shape) > 16)), shape
        assert seen[:, :active].var(0, unbiased=False).mean() == pytest.approx(1.0, abs=0.1), shape


def test_settings_that_cannot_work_are_refused():
    for wrong, named in (
        ({"state_noise": 0.0}, "state_noise"),
        ({"state_noise": "much"}, "much"),
        ({"state_noise": -1.0}, "state_noise"),
        ({"kernels": 1}, "kernels"),
        ({"kernels": 10.5}, "kernels=10.5"),
        ({"information_rate": "x"}, "information_rate='x'"),
        ({"components": 2.5}, "components=2.5"),
        ({"information_rate": 0.0}, "information_rate"),
        ({"features": "deep"}, "deep"),
        ({"projection": "random"}, "random"),
        ({"components": 0}, "components"),
    ):
        with pytest.raises(UsageError, match=named):
            make_bonus("kernel-exemplar", IMAGE, CONTINUOUS, **wrong)
    with pytest.raises(UsageError, match="kl_weight"):
        make_bonus("amortized", VECTOR, CONTINUOUS, kl_weight="some")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["kernel-exemplar", "amortized"])
def test_a_gpu_gives_the_same(name):
    """The same densities as on the CPU up to rounding, and a run that was saved and loaded goes on the same."""
    batches = [places(gaussian(400, seed=seed)) for seed in range(6)]
    settings = {"state_noise": 0.1} | ({"steps": 20, "schedule": "one-cycle"} if name == "amortized" else {})
    cpu, gpu, loaded = (make_bonus(name, VECTOR, CONTINUOUS, device=d, **settings) for d in ("cpu", "cuda", "cuda"))
    for batch in batches[:3]:
        cpu.observe(batch)
        gpu.observe(batch)
    assert torch.allclose(cpu.log_density(gaussian(50)), gpu.log_density(gaussian(50)), atol=0.05)
    loaded.load_state_dict(copy.deepcopy(gpu.state_dict()))
    for batch in batches[3:]:
        assert torch.allclose(gpu.observe(batch)[0], loaded.observe(batch)[0], atol=0.05)


def test_early_stopping_ends_a_fit_that_has_settled():
    for name in ("amortized", "k-exemplar"):
        taken = []
        for tolerance in (0.0, 1e-9, 100.0):
            model = make_bonus(name, VECTOR, CONTINUOUS, steps=50, first_steps=50, state_noise=0.1, tolerance=tolerance)
            model.remember(places(gaussian(400)))
            step, count = model.learner.step, []
            model.learner.step = lambda *a, step=step, count=count: count.append(1) or step(*a)
            model.prepare(places(gaussian(400, seed=1)))
            taken.append(len(count))
        assert taken[0] == 50, name
        assert taken[1] > 20 or name == "k-exemplar"  # a young network learns on held-out states, too
        assert taken[2] == 20, name
