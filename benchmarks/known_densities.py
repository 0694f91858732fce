"""Data whose density is known: in the plane, in 8 and 20 dimensions, and pictures of a thing in a known random place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates
from scipy.special import logsumexp

Draw = Callable[[int, np.random.Generator], np.ndarray]
LogDensity = Callable[[np.ndarray, np.ndarray | float], np.ndarray]


@dataclass(frozen=True)
class Known:
    """`draw(count, random)` gives points [count, d]; `log_density(points, sigma)` is log (P * N(0, diag(sigma^2)))."""

    draw: Draw
    log_density: LogDensity


def mixture(dimensions: int, components: int, seed: int, spread: float, widths: tuple[float, float]) -> Known:
    """Round Gaussians of unequal widths and weights, smoothed in closed form."""
    random = np.random.default_rng(seed)
    centres = random.normal(0.0, spread, (components, dimensions))
    weights = random.dirichlet(np.full(components, 2.0))
    scales = random.uniform(*widths, components)

    def draw(count: int, random: np.random.Generator) -> np.ndarray:
        chosen = random.choice(components, count, p=weights)
        return centres[chosen] + scales[chosen, None] * random.normal(size=(count, dimensions))

    def log_density(points: np.ndarray, sigma: np.ndarray | float) -> np.ndarray:
        variance = scales[:, None] ** 2 + np.broadcast_to(sigma, dimensions) ** 2
        apart = ((points[:, None] - centres) ** 2 / variance).sum(-1)
        return logsumexp(np.log(weights) - 0.5 * (apart + np.log(2 * np.pi * variance).sum(-1)), axis=1)

    return Known(draw, log_density)


def planar(draw: Draw, density: Callable[[np.ndarray], np.ndarray], reach: float = 4.0, cells: int = 1_600) -> Known:
    """A density in the plane, up to a constant, normalised and smoothed on a fine grid."""
    step = 2 * reach / cells
    middle = (np.arange(cells) + 0.5) * step - reach
    values = density(np.stack(np.meshgrid(middle, middle, indexing="ij"), -1).reshape(-1, 2)).reshape(cells, cells)
    values = values / (values.sum() * step**2)

    def log_density(points: np.ndarray, sigma: np.ndarray | float) -> np.ndarray:
        smooth = gaussian_filter(values, np.broadcast_to(sigma, 2) / step, truncate=8.0)
        return map_coordinates(np.log(np.maximum(smooth, 1e-300)), ((points + reach) / step - 0.5).T, order=1)

    return Known(draw, log_density)


def pinwheel(arms: int = 5, twist: float = 1.0, along: float = 0.35, across: float = 0.12) -> Known:
    """Gaussian arms around a centre, each turned by an angle that grows with the radius (which keeps areas)."""

    def turned(points: np.ndarray, angle: np.ndarray) -> np.ndarray:
        cos, sin = np.cos(angle), np.sin(angle)
        return np.stack([cos * points[:, 0] - sin * points[:, 1], sin * points[:, 0] + cos * points[:, 1]], 1)

    def draw(count: int, random: np.random.Generator) -> np.ndarray:
        arm = random.normal([1.2, 0.0], [along, across], (count, 2))
        return turned(arm, random.integers(arms, size=count) * 2 * np.pi / arms + twist * np.linalg.norm(arm, axis=1))

    def density(points: np.ndarray) -> np.ndarray:
        total = np.zeros(len(points))
        for arm in range(arms):
            back = turned(points, -(arm * 2 * np.pi / arms + twist * np.linalg.norm(points, axis=1)))
            total += np.exp(-0.5 * ((back[:, 0] - 1.2) / along) ** 2 - 0.5 * (back[:, 1] / across) ** 2)
        return total

    return planar(draw, density)


def ring(radius: float = 1.5, width: float = 0.15) -> Known:
    """Uniform around a circle, Gaussian across it, with nothing in the middle."""

    def draw(count: int, random: np.random.Generator) -> np.ndarray:
        length, angle = random.normal(radius, width, count), random.uniform(0, 2 * np.pi, count)
        return np.stack([length * np.cos(angle), length * np.sin(angle)], 1)

    def density(points: np.ndarray) -> np.ndarray:
        length = np.linalg.norm(points, axis=1)
        return np.exp(-0.5 * ((length - radius) / width) ** 2) / np.maximum(length, 1e-3)

    return planar(draw, density)


VECTORS: dict[str, Callable[[], Known]] = {
    "pinwheel": pinwheel,
    "mixture": lambda: mixture(2, 5, seed=3, spread=1.2, widths=(0.15, 0.5)),
    "ring": ring,
    "mixture, 8-D": lambda: mixture(8, 6, seed=1, spread=1.0, widths=(0.5, 0.9)),
    "mixture, 20-D": lambda: mixture(20, 6, seed=2, spread=1.0, widths=(0.5, 0.9)),
}
PLANAR = ("pinwheel", "mixture", "ring")

SIDE = 32  # pixels
RADIUS = 3.0  # of the disc, in pixels
CENTRES = np.array([[0.3, 0.3], [0.65, 0.6], [0.35, 0.7]])  # of where it is, as a share of the picture
WEIGHTS = np.array([0.5, 0.3, 0.2])
SCALES = np.array([0.06, 0.12, 0.09])
DRIFT = 0.01  # from frame to frame


def draw_places(count: int, random: np.random.Generator) -> np.ndarray:
    """Positions of the disc, [count, 2], all within the picture."""
    places = np.zeros((0, 2))
    while len(places) < count:
        chosen = random.choice(3, count, p=WEIGHTS)
        some = random.normal(CENTRES[chosen], SCALES[chosen, None])
        places = np.concatenate([places, some[((some > 0.05) & (some < 0.95)).all(1)]])
    return places[:count]


def log_density_of_places(places: np.ndarray) -> np.ndarray:
    """Their log density, [count], but for the few outside the picture."""
    apart = ((places[:, None] - CENTRES) ** 2).sum(-1) / (2 * SCALES**2)
    return logsumexp(np.log(WEIGHTS) - apart - np.log(2 * np.pi * SCALES**2), axis=1)


def backgrounds(count: int, random: np.random.Generator) -> np.ndarray:
    """Smooth random colours, [count, 32, 32, 3] in [0.15, 0.65]."""
    colours = gaussian_filter(random.normal(size=(count, SIDE, SIDE, 3)), (0, 2, 2, 0))
    low, high = colours.min((1, 2, 3), keepdims=True), colours.max((1, 2, 3), keepdims=True)
    return 0.15 + 0.5 * (colours - low) / (high - low)


def render(places: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """A yellow disc with a soft edge at each place, over pictures [count or 1, 32, 32, 3]: bytes [count, 32, 32, 3]."""
    centre, pixel = RADIUS + places * (SIDE - 2 * RADIUS), np.arange(SIDE) + 0.5
    apart = np.hypot(pixel[None, :, None] - centre[:, 1, None, None], pixel[None, None, :] - centre[:, 0, None, None])
    cover = np.clip(RADIUS + 0.5 - apart, 0.0, 1.0)[..., None]
    return (255 * (cover * np.array([0.95, 0.8, 0.2]) + (1 - cover) * behind)).astype(np.uint8)


def films(count: int, steps: int, changing: bool, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Films [steps, count, 32, 32, 3] of a drifting disc, and its places [steps, count, 2].

    The background is one fixed picture, or another one in each frame.
    """
    places = draw_places(count, random) + np.cumsum(random.normal(0, DRIFT, (steps, count, 2)), 0)
    fixed = backgrounds(1, np.random.default_rng(7))
    frames = [render(here, backgrounds(count, random) if changing else fixed) for here in places]
    return np.stack(frames), places
