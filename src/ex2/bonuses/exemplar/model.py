"""What the exemplar models have in common: networks trained for some steps on each new batch, on top of a density bonus."""

from __future__ import annotations

import abc
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ex2.batch import Batch
from ex2.bonus import DensityBonus, DensitySettings, Metrics
from ex2.bonuses.captured import Loss, uploaded
from ex2.bonuses.exemplar.held import Held, Points
from ex2.bonuses.exemplar.smoothing import AUTO, CENTRES, adapted, target_rate
from ex2.bonuses.learner import Learner
from ex2.errors import UsageError
from ex2.networks import Stem
from ex2.replay import Fifo
from ex2.settings import setting

UNDECIDED = 0.05  # D within this of 1/2
SATURATED = 0.001  # D within this of 1
COLLAPSED = 0.95  # share of exemplars from which on it is called a collapse
PATIENCE = 5  # fits in a row that end so before automatic smoothing begins anew: young networks are undecided, too
SCHEDULES = ("constant", "one-cycle")
WARM_UP = 0.1  # share of the steps in which a one-cycle rate rises
CHECKS = 5  # how often in a fit the held-out loss is looked at
HELD_OUT = 0.1  # share of a batch's states that are held out for it
PROBES, PROBE_DIMENSIONS, PROBE_EVERY = 256, 4, 10  # states compared with a kernel estimate, in so many dimensions, how often
DRAWN_AT_ONCE = 16  # steps, whose draws go to a GPU together
FARTHEST_SCATTER = 10.0  # deviations that exemplars are scattered by at the most, in a fixed metric
METRICS = ("fixed", "learned")

Draw = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True, kw_only=True)
class ExemplarSettings(DensitySettings):
    """Of the paper's exemplar models."""

    metric: str = setting(
        "fixed",
        'what the networks see of a state. "fixed": a point in the metric of `ex2.bonuses.exemplar.features`, which nothing '
        'trains. "learned", as in the paper: standardised numbers, and pictures through convolutions that are trained with the '
        "rest. In many dimensions and for pictures the networks learn nothing of use from few steps on the latter. A fixed "
        "metric is fitted anew each time that twice as much was seen, and networks then begin anew",
        among=METRICS,
    )
    steps: int = setting(1_000, "gradient steps for each batch", least=1)
    first_steps: int | None = setting(
        None, "gradient steps for the first batch or a new metric; as many as for others, unless more is said", least=1
    )
    state_noise: float | Literal["auto"] = setting(
        AUTO,
        "standard deviation of Gaussian noise on the states that are classified, in deviations of what was seen; not for "
        'pictures in a learned metric. Exemplars themselves stay as they are. "auto" chooses it from the data, see '
        "`ex2.bonuses.exemplar.smoothing`, and is none for such pictures",
        least=0.0,
    )
    information_rate: float | None = setting(
        None, 'in nats, what "auto" holds, up to 6.1; None for 0.4 log n, with n the states held', above=0.0
    )
    schedule: str = setting(
        "constant",
        'of the learning rate within a fit: "constant" (the paper\'s), or "one-cycle", which rises and falls to 2 %',
        among=SCHEDULES,
    )
    tolerance: float = setting(
        0.0,
        "a fit ends early once its loss on exemplars that are held out (for K-exemplar heads, which belong to their exemplars: "
        "on other noise and background) falls by less than this in a fifth of its steps; 0 takes all steps",
        least=0.0,
    )


class ExemplarModel(DensityBonus):
    """Base of the exemplar models."""

    Settings = ExemplarSettings
    settings: ExemplarSettings

    def setup(self) -> None:
        super().setup()
        fixed = self.settings.metric == "fixed"
        self.held = Held(self.inputs, self.replay, self.generator, self.device) if fixed else None
        noise = self.settings.state_noise
        if not self.vectors and noise == AUTO:
            noise = 0.0
        if noise and not self.vectors:
            raise UsageError(f"state_noise={noise} is for vectors: images are smoothed by noise in a latent space.")
        self.state_noise = noise
        self.sigma = 0.0 if noise == AUTO else float(noise)
        self.seconds: float | None = None  # a fit ends after so long; not a setting, since no two runs would be the same
        self.fitted = False
        self.fits = self.recoveries = self.undecided_fits = 0
        self.smoothed = 0  # states held when the noise was last adapted
        self.learner = Learner(self.build, self.generator.initial_seed(), self.device, self.learning_rate)
        self.networks = self.learner.networks

    @abc.abstractmethod
    def build(self) -> nn.Module:
        """Makes the networks; called with PyTorch's generator seeded."""

    @property
    @abc.abstractmethod
    def stem(self) -> Stem | Points:
        """What standardises the states that are classified."""

    def make_stem(self) -> Stem | Points:
        """What networks begin with."""
        return Stem(self.inputs) if self.held is None else Points(self.held.features)

    @property
    def vectors(self) -> bool:
        """Whether networks see vectors, and noise on them means something."""
        return self.held is not None or not self.inputs.pictures

    @property
    def background(self) -> Fifo:
        """What the networks see of the states held."""
        return self.replay if self.held is None else self.held.points

    @torch.no_grad()
    def view(self, rows: Tensor) -> Tensor:
        """Rows as `inputs` makes them -> what networks see of them: points of a fixed metric, or the rows themselves."""
        return rows if self.held is None else self.held.view(rows)

    def update_metric(self, batch: Batch, stems: Sequence[Stem | Points]) -> None:
        """Takes the new batch into the moments of stems; a fixed metric is fitted when twice as much was seen."""
        if self.held is not None and not self.held.due:
            return
        if self.held is not None and self.fitted:
            self.begin_anew()  # the networks knew other directions
        rows = self.inputs.rows(batch)[batch.mask] if self.held is None else self.view(self.held.fit(batch)).to(self.device)
        for stem in stems:
            stem.update(rows)

    def log_density(self, rows: Tensor) -> Tensor:
        return self.log_density_of(self.view(rows)) if len(self.background) else torch.zeros(len(rows))

    @abc.abstractmethod
    def log_density_of(self, seen: Tensor) -> Tensor:
        """log p of what the networks see of states, [M, D] -> [M]."""

    def remember(self, batch: Batch) -> None:
        super().remember(batch)
        if self.held is not None:
            self.held.add(batch)

    @property
    @abc.abstractmethod
    def learning_rate(self) -> float:
        """Of the networks."""

    @property
    def automatic(self) -> bool:
        """Whether the amount of smoothing is chosen from the data."""
        return self.state_noise == AUTO

    def rate_now(self) -> float:
        """The information rate in nats that automatic smoothing aims for."""
        return target_rate(len(self.replay)) if self.settings.information_rate is None else self.settings.information_rate

    def adapt_noise(self) -> None:
        """Moves automatic noise towards the scale at which the states held have the information rate that is aimed for."""
        if self.state_noise != AUTO:
            return
        points, table = self.background.sample(CENTRES, self.generator), False
        if self.held is None:
            points = self.stem(points.to(self.device)).cpu()
        else:
            table = bool(self.held.features.table)
        before, count = self.smoothed if self.fitted else 0, len(self.replay)
        self.sigma = adapted(self.sigma, before, points, count, self.rate_now(), table, self.generator)
        self.smoothed = count

    def scatter_rows(self, rows: Tensor) -> None:
        """Moves rows [M, D] by Gaussian noise, in place: not actions, and not out of a bounded space.

        By one deviation of what was seen; points of a fixed metric by 1 to 10 of them, as many far as near.
        """
        if isinstance(self.stem, Points):
            reach = FARTHEST_SCATTER ** torch.rand(len(rows), 1, generator=self.generator)
            self.stem.scatter(rows, reach, torch.randn(rows.shape, generator=self.generator))
            return
        width = self.inputs.numbers
        moved = rows[:, :width] + self.stem.moments.spread().cpu() * torch.randn(len(rows), width, generator=self.generator)
        rows[:, :width] = moved.clamp(-1.0, 1.0) if self.inputs.bounded else moved

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The rows to train on, and those held out for early stopping (none without it)."""
        if not self.settings.tolerance or len(rows) < 2:
            return rows, rows[:0]
        order = torch.randperm(len(rows), generator=self.generator)
        held = max(round(HELD_OUT * len(rows)), 1)
        return rows[order[held:]], rows[order[:held]]

    def descend(
        self, draw: Draw, loss: Loss, held: tuple[Tensor, ...] | None = None, also: torch.optim.Optimizer | None = None
    ) -> tuple[Tensor, ...]:
        """Adam on `loss(*draw())`; returns what the last loss returned, its first entry the loss itself.

        `draw` makes the tensors of one step on the CPU: all that is random. On a GPU the step is captured as a CUDA graph,
        unless there is another optimiser `also`. `held` is what `loss` takes for states held out, for early stopping.
        """
        steps, started = self.steps_now(), time.monotonic()
        best, checks = math.inf, max(steps // CHECKS, 1)
        captured = self.device.type == "cuda" and also is None
        result: tuple[Tensor, ...] = ()
        for start in range(0, steps, DRAWN_AT_ONCE):
            some = range(start, min(start + DRAWN_AT_ONCE, steps))
            draws: Iterable[tuple[Tensor, ...]] = (draw() for _ in some)
            if captured:
                draws = zip(*(uploaded(field, self.device) for field in zip(*draws, strict=True)), strict=True)
            for step, drawn in zip(some, draws, strict=True):
                progress = max(step / steps, (time.monotonic() - started) / self.seconds if self.seconds else 0.0)
                if progress >= 1.0 and result:
                    return result
                self.learner.set_rate(self._factor(progress))
                result = self.learner.captured_step(loss, drawn) if captured else self.learner.step(loss, drawn, also)
                if held is not None and self.settings.tolerance and (step + 1) % checks == 0:
                    with torch.no_grad():
                        now = loss(*(value.to(self.device) for value in held))[0].item()
                    if now > best - self.settings.tolerance:
                        return result
                    best = min(best, now)
        return result

    def _factor(self, progress: float) -> float:
        """What the learning rate is multiplied by, so far into a fit."""
        if self.settings.schedule == "constant":
            return 1.0
        falling = max(progress - WARM_UP, 0.0) / (1.0 - WARM_UP)
        return max(min(progress / WARM_UP, 0.5 + 0.5 * math.cos(math.pi * falling)), 0.02)

    def report(self, loss: Tensor, positive: Tensor, negative: Tensor, telling: bool = True) -> Metrics:
        """Metrics from the last step's logits, and a warning where the discriminators have stopped saying anything.

        `undecided` is the share of exemplars with D near 1/2, `saturated` that with D near 1. Either at 1 means that every
        state looks equally novel: smoothing is too strong (posterior collapse) or too weak. `telling` is False for a
        discriminator of whole batches, of which D = 1/2 is the right answer where they are alike. Where smoothing is
        automatic, networks that stay collapsed begin anew; those whose loss is no number any more do so at once.
        """
        certainty = torch.sigmoid(positive.detach())
        metrics = {
            "loss": loss.item(),
            "accuracy_positive": (positive > 0).float().mean().item(),
            "accuracy_negative": (negative < 0).float().mean().item(),
            "undecided": ((certainty - 0.5).abs() < UNDECIDED).float().mean().item(),
            "saturated": (certainty > 1.0 - SATURATED).float().mean().item(),
            "smoothing": self.sigma,
        }
        self.fits += 1
        self.fitted = True
        lost = not math.isfinite(metrics["loss"])
        collapsed = telling and metrics["undecided"] > COLLAPSED
        self.undecided_fits = self.undecided_fits + 1 if collapsed else 0
        if lost or (self.automatic and self.undecided_fits >= PATIENCE):
            self.recover()
        elif collapsed and not self.automatic:
            warnings.warn(
                "The discriminators have collapsed to D = 1/2: lower the KL weight or the noise, or fit longer.", stacklevel=3
            )
        if metrics["saturated"] > COLLAPSED:
            warnings.warn("The discriminators are sure of every state (D = 1): raise the KL weight or the noise.", stacklevel=3)
        return metrics | {"collapsed": float(lost or collapsed), "recoveries": float(self.recoveries)} | self.agreement()

    def recover(self) -> None:
        """Begins anew after a collapse, and says so."""
        self.begin_anew()
        self.recoveries += 1
        warnings.warn(
            "The discriminators have collapsed: they begin anew with the next batch; what was visited is kept.", stacklevel=4
        )

    def begin_anew(self) -> None:
        """Takes other initial weights: the next batch is fitted like a first one. What was visited is kept."""
        self.learner.begin_anew(int(torch.randint(2**31, (1,), generator=self.generator)))
        self.fitted = False
        self.undecided_fits = 0

    def agreement(self) -> Metrics:
        """The correlation of log p with a kernel estimate on states held, where there are few enough dimensions."""
        few = not self.inputs.pictures and self.inputs.width <= PROBE_DIMENSIONS
        if not few or len(self.background) < PROBES or self.fits % PROBE_EVERY != 1:
            return {}
        fixed = torch.Generator().manual_seed(0)
        probes, centres = self.background.sample(PROBES, fixed), self.background.sample(CENTRES, fixed)
        spread = 1.0 if isinstance(self.stem, Points) else self.stem.spread().cpu()
        exponents = torch.cdist(probes / spread, centres / spread).square() * (-0.5 / (self.sigma or 0.1) ** 2)
        pair = torch.stack([self.log_density_of(probes), torch.logsumexp(exponents, 1)])
        return {"kernel_correlation": torch.corrcoef(pair)[0, 1].nan_to_num().item()}

    def steps_now(self) -> int:
        """Gradient steps for the batch at hand."""
        first = None if self.fitted else self.settings.first_steps
        return max(self.settings.steps, first or 0)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "held": None if self.held is None else self.held.state_dict(),
            "learner": self.learner.state_dict(),
            "sigma": self.sigma,
            "fitted": self.fitted,
            "fits": self.fits,
            "recoveries": self.recoveries,
            "undecided_fits": self.undecided_fits,
            "smoothed": self.smoothed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if self.held is not None:
            self.held.load_state_dict(state["held"])
        self.learner.load_state_dict(state["learner"])
        self.sigma, self.fitted = float(state["sigma"]), bool(state["fitted"])
        self.fits, self.recoveries = int(state["fits"]), int(state["recoveries"])
        self.undecided_fits, self.smoothed = int(state["undecided_fits"]), int(state["smoothed"])

    def to(self, device: str | torch.device) -> ExemplarModel:
        super().to(device)
        self.learner.to(self.device)
        if self.held is not None:
            self.held.to(self.device)
        return self
