"""RND, ICM, SimHash and combinations: what each must get right beside the contract of all bonuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from conftest import BUTTONS, CONTINUOUS, IMAGE, SPACES, UNBOUNDED, VECTOR, make_batch
from ex2 import Batch, UsageError, make_bonus
from ex2.training.config import configure


def still(obs, action=None):
    """Transitions in which nothing happens."""
    return Batch.of(obs, torch.zeros(*obs.shape[:2], 2) if action is None else action, obs)


def test_rnd_standardises_and_clips_what_it_sees():
    bonus = make_bonus("rnd", UNBOUNDED, CONTINUOUS)
    random = np.random.default_rng(0)
    obs = torch.as_tensor(random.normal([5.0, 0.0, -100.0], [0.1, 10.0, 1000.0], (50, 4, 3)), dtype=torch.float32)
    bonus.prepare(still(obs))
    _, seen = bonus.networks.target.standardised(obs.flatten(0, 1))
    assert torch.allclose(seen.mean(0), torch.zeros(3), atol=1e-3)
    assert torch.allclose(seen.std(0), torch.ones(3), atol=0.02)
    assert bonus.networks.target.standardised(1e9 * torch.ones(1, 3))[1].tolist() == [[5.0, 5.0, 5.0]]


def test_rnd_learns_the_predictor_and_never_the_target():
    bonus = make_bonus("rnd", VECTOR, CONTINUOUS, epochs=30, learning_rate=1e-3)
    batch = make_batch(SPACES["vector-continuous"])
    bonus.prepare(batch)
    before = bonus.errors(batch).mean()
    frozen = [value.clone() for value in bonus.networks.target_head.parameters()]
    bonus.remember(batch)
    assert bonus.errors(batch).mean() < 0.2 * before
    assert all(torch.equal(a, b) for a, b in zip(frozen, bonus.networks.target_head.parameters(), strict=True))


@pytest.mark.parametrize("discrete", [True, False])
def test_icm_does_not_look_at_what_actions_do_not_move(discrete):
    """Of two numbers one follows the action and one is noise. Noise cannot be foreseen, but it leaves no trace in features."""
    random = torch.Generator().manual_seed(0)
    bonus = make_bonus("icm", VECTOR, BUTTONS if discrete else spaces.Box(-1, 1, (1,)), epochs=4, learning_rate=3e-3)

    def batch():
        place = 0.5 * (torch.rand(100, 4, generator=random) - 0.5)
        if discrete:
            action = torch.randint(3, (100, 4), generator=random)
            moved = 0.4 * (action - 1)
        else:
            action = 2 * torch.rand(100, 4, 1, generator=random) - 1
            moved = 0.4 * action.squeeze(-1)
        noise = 2 * torch.rand(2, 100, 4, generator=random) - 1
        return Batch.of(torch.stack([place, noise[0]], -1), action, torch.stack([place + moved, noise[1]], -1))

    for _ in range(25):
        bonus.observe(batch())
    seen = batch()
    features = bonus.networks.features(bonus.inputs.rows(seen).flatten(0, 1)).detach()
    other = seen.obs.clone()
    shifted = []
    for entry in range(2):
        changed = other.clone()
        changed[..., entry] += 0.2
        again = bonus.networks.features(changed.flatten(0, 1)).detach()
        shifted.append((again - features).square().sum(1).mean())
    assert shifted[0] > 4 * shifted[1]


def test_simhash_counts_visits():
    """States far from each plane: as many visits as were made, in whatever batches."""
    bonus = make_bonus("simhash", VECTOR, CONTINUOUS, bits=16, offset=0.5)
    a, b = torch.tensor([0.9, 0.9]), torch.tensor([-0.9, -0.8])
    for _ in range(3):
        bonus.observe(still(torch.stack([a, a, a, b])[:, None].expand(4, 2, 2)))
    scores = bonus.score(still(torch.stack([a, b])[:, None].expand(2, 1, 2)))
    assert scores.flatten().tolist() == pytest.approx([19**-0.5, 7**-0.5])


def test_simhash_is_not_ruled_by_a_number_that_was_constant_at_first():
    random = torch.Generator().manual_seed(0)
    bonus = make_bonus("simhash", UNBOUNDED, CONTINUOUS, bits=16)
    first, later = torch.randn(200, 4, 3, generator=random), torch.randn(200, 4, 3, generator=random)
    first[..., 0] = 0.0
    later[..., 0] = 1.0
    bonus.observe(still(first))
    codes = bonus.networks(later.flatten(0, 1))
    assert len(codes.unique(dim=0)) > 40  # it was 2


def test_vime_is_not_ruled_by_one_number_far_outside():
    pair = SPACES["unbounded"]
    bonus = make_bonus("vime", *pair)
    for seed in range(5):
        batch = make_batch(pair, seed=seed)
        batch.obs[..., 0] = batch.next_obs[..., 0] = 0.0
        bonus.observe(batch)
    batch.obs[3, 2, 0] = 0.1
    assert bonus.score(batch).max() < 1_000


def test_the_order_of_parts_does_not_matter_to_the_weight():
    assert configure("maze", "rnd+kde").weight == configure("maze", "kde+rnd").weight


def test_simhash_memory_is_bounded_and_counts_are_never_too_low():
    bonus = make_bonus("simhash", UNBOUNDED, CONTINUOUS, bits=64, buckets=500)
    random = torch.Generator().manual_seed(0)
    places = torch.randn(300, 3, generator=random)
    for _ in range(3):
        bonus.observe(still(places[:, None]))
    assert bonus.counts.shape == (4, 500)
    assert (bonus.score(still(places[:, None])) <= 4**-0.5 + 1e-6).all()
    assert bonus.score(still(places[:, None])).median() > 0.3


@pytest.mark.slow
def test_simhash_codes_of_images_tell_pictures_apart_and_not_noise():
    """Bright squares in nine places, with noise on every pixel: a code is a place, more or less."""
    random = np.random.default_rng(0)

    def frames(count):
        place = random.integers(9, size=count)
        picture = random.integers(0, 30, (count, 16, 16, 3))
        for image, where in zip(picture, place, strict=True):
            image[1 + 5 * (where // 3) : 5 + 5 * (where // 3), 1 + 5 * (where % 3) : 5 + 5 * (where % 3)] += 200
        return torch.as_tensor(picture.astype(np.uint8)).reshape(-1, 4, 16, 16, 3), place

    bonus = make_bonus("simhash", IMAGE, BUTTONS, bits=16, learning_rate=3e-3, steps=150)
    for _ in range(3):
        obs, _ = frames(400)
        bonus.observe(Batch.of(obs, torch.zeros(obs.shape[:2], dtype=torch.long), obs))
    obs, place = frames(400)
    codes = bonus.networks(obs.reshape(400, -1))
    alike = (codes[:, None] == codes[None]).float().mean(-1).numpy()
    same = place[:, None] == place[None]
    assert alike[same].mean() > alike[~same].mean() + 0.2


def test_parts_count_by_their_shares_each_on_its_own_scale():
    pair = SPACES["vector-continuous"]
    bonus = make_bonus("kde+simhash", *pair, shares=[2.0, 1.0], **{"kde.subsample": 50})
    assert bonus.parts["kde"].settings.subsample == 50
    for seed in range(3):
        bonus.observe(make_batch(pair, seed=seed))
    batch = make_batch(pair, seed=9)
    metrics = bonus.prepare(batch)
    kde, simhash = (bonus.parts[name].score(batch) / bonus.deviations[name] for name in ("kde", "simhash"))
    assert torch.allclose(bonus.score(batch), 2.0 * kde + simhash)
    assert simhash.std() == pytest.approx(1.0, abs=0.3)
    assert "simhash/codes" in metrics


@pytest.mark.parametrize(
    ("name", "settings", "match"),
    [
        ("rnd+rnd", {}, "twice"),
        ("rnd+kde", {"shares": [1.0]}, "shares"),
        ("rnd+kda", {}, "did you mean 'kde'"),
        ("rnd+kde", {"rnd.hiden": 3}, "did you mean 'rnd.hidden'"),
        ("rnd", {"share": 0.0}, "share"),
        ("icm", {"forward_share": 1.0}, "forward_share"),
        ("icm", {"epochs": 0}, "epochs"),
        ("simhash", {"bits": 0}, "bits"),
        ("none+rnd", {}, "rates nothing"),
        ("rnd+kde", {"shares": ["a", 1.0]}, "shares"),
        ("rnd+kde", {"shares": 1.0}, "shares"),
        ("vime", {"hidden": [1.5]}, "hidden"),
        ("vime", {"hidden": 32}, "hidden"),
        ("rnd", {"learning_rate": float("nan")}, "learning_rate"),
        ("rnd", {"entries": [True]}, "entries"),
        ("rnd", {"entries": 3}, "entries"),
    ],
)
def test_settings_that_cannot_be_are_refused(name, settings, match):
    with pytest.raises(UsageError, match=match):
        make_bonus(name, VECTOR, CONTINUOUS, **settings)


def test_the_codes_penalty_is_on_units_that_are_neither_0_nor_1():
    rows = make_bonus("simhash", *SPACES["image"]).inputs.rows(make_batch(SPACES["image"], 40)).flatten(0, 1)
    losses, codes = [], []
    for saturation in (0.0, 100.0):
        bonus = make_bonus("simhash", *SPACES["image"], saturation=saturation)
        losses.append(bonus.loss(rows, torch.zeros(len(rows), bonus.settings.units)))
        codes.append(bonus.networks.autoencoder(rows))
    assert torch.equal(*codes)
    expected = 100.0 * torch.minimum(codes[0] ** 2, (1.0 - codes[0]) ** 2).mean()
    assert (losses[1] - losses[0]).item() == pytest.approx(expected.item(), rel=1e-3)
    (losses[1] - losses[0]).backward()
    assert any(p.grad is not None and p.grad.any() for p in bonus.networks.autoencoder.encoder.parameters())


def test_the_code_is_learned_with_noise_on_it():
    """Uniform, of 0.3 to either side, as the paper has it."""
    bonus = make_bonus("simhash", *SPACES["image"], steps=3)
    given = []
    loss = bonus.loss
    bonus.loss = lambda *fields: given.append(fields[1]) or loss(*fields)
    bonus.prepare(make_batch(SPACES["image"], 40))
    noise = torch.stack(given)
    assert noise.abs().max() <= 0.3
    assert noise.std().item() == pytest.approx(0.3 / 3**0.5, rel=0.05)
