"""Tables of what benchmarks measured, and of what was noted of single runs."""

from __future__ import annotations

import json

import pandas as pd

from cells import RESULTS, ROOT, made, millions, table


def tried(name: str, part: str) -> str:
    """What was tried: an arm a line, its scores by seed, and by steps within a seed."""
    every = pd.read_csv(RESULTS / "tried" / f"{name}.csv", dtype=str, keep_default_na=False)
    every, lines = every[every["table"] == part], []
    for arm, rows in every.groupby("arm", sort=False):
        cells = []
        for seed, own in rows[rows["score"] != ""].groupby("seed", sort=False):
            cells.append((f"{seed}: " if seed else "") + ", ".join(own["score"]))
        steps = sorted({int(step) for step in rows["steps"] if step})
        span = " to ".join(dict.fromkeys(millions(step) for step in ([steps[0], steps[-1]] if steps else [])))
        lines.append(
            [arm, span, "; ".join(cells), " ".join(rows["note"]).strip(), " ".join(dict.fromkeys(rows["commit"])).strip()]
        )
    header = ["arm", "steps", "score, by seed; at more than one time where there are several", "note", "commit"]
    kept = [i for i in range(len(header)) if any(line[i] for line in lines)]
    return table([header[i] for i in kept], [[line[i] for i in kept] for line in lines]) + made(f"results/tried/{name}.csv")


def facts(name: str, part: str) -> str:
    """Single measurements, as they were noted."""
    every = pd.read_csv(RESULTS / "tried" / f"{name}.csv", dtype=str, keep_default_na=False)
    rows = every[every["table"] == part]
    columns = ["what", "measured", *(["how"] if rows["how"].any() else [])]
    return table([column if column != "how" else "note" for column in columns], rows[columns].values) + made(
        f"results/tried/{name}.csv"
    )


def rows(data: str, name: str, *columns: str) -> str:
    """A CSV file as it is: some of its columns, all without any. `column=value` keeps such rows only."""
    every = pd.read_csv(ROOT / data, dtype=str, keep_default_na=False)
    for word in columns:
        if "=" in word:
            column, value = word.split("=", 1)
            every = every[every[column] == value]
    kept = [word for word in columns if "=" not in word] or [
        c for c in every if not any(w.startswith(f"{c}=") for w in columns)
    ]
    kept = [column for column in kept if (every[column] != "").any()]
    return table([column.replace("_", " ") for column in kept], every[kept].values) + made(data, name)


def novelty() -> str:
    """Over all worlds: the lowest and the median rank correlation of each bonus."""
    data, lines = pd.read_csv(RESULTS / "novelty" / "novelty.csv"), []
    for bonus, own in data.groupby("bonus"):
        found = own["correlation"].dropna()
        above = f"{(found >= 0.9).sum()} of {len(found)}"
        refused = own[own["correlation"].isna()]["world"].nunique()
        lines.append(
            (
                found.median() - bool(refused),
                [f"`{bonus}`", f"{found.median():.2f}", f"{found.min():.2f}", above, refused or ""],
            )
        )
    lines.sort(key=lambda line: -line[0])
    header = ["bonus", "median", "lowest", "runs at 0.9 or more", "worlds it refuses"]
    return table(header, [line for _, line in lines]) + made("results/novelty/novelty.csv", "novelty")


def outliers() -> str:
    """Mean area under the ROC curve over all tables and seeds."""
    data = pd.read_csv(RESULTS / "outliers" / "outliers.csv")
    means = data.groupby("detector")[["area", "seconds"]].mean().sort_values("area", ascending=False)
    lines = [[name, f"{row.area:.1f}", f"{row.seconds:.2f}"] for name, row in means.iterrows()]
    count = data["table"].nunique()
    header = ["detector", f"mean area under the ROC curve, {count} tables", "seconds a table"]
    return table(header, lines) + made("results/outliers/outliers.csv", "outliers")


def densities(column: str = "r") -> str:
    """Method x data: the correlation with the true log density."""
    data = pd.read_csv(RESULTS / "density" / "vectors.csv")
    wide = data.pivot(index="method", columns="data", values=column)[data["data"].unique()].loc[data["method"].unique()]
    lines = [[name, *(f"{value:.3f}" for value in row)] for name, row in zip(wide.index, wide.to_numpy(), strict=True)]
    return table(["", *wide.columns], lines) + made("results/density/vectors.csv", "density")


def cost(device: str = "cost") -> str:
    """Of fitting and scoring beside a TRPO update of the same states."""
    data = json.loads((RESULTS / "cost" / f"{device}.json").read_text())
    keys = ("states", "model", "seconds", "update", "ratio", "r", "longest")
    lines = [
        [row[keys[0]], row[keys[1]], *(f"{row[key]:.{2 if key in ('ratio', 'longest') else 3}f}" for key in keys[2:])]
        for row in data["ratios"]
    ]
    header = ["states", "model", "prepare + score, s", "TRPO update, s", "ratio", "r on the batch", "longest of the first, s"]
    return table(header, lines) + made(f"results/cost/{device}.json", device) + f" On {data['machine']}."


def growth(device: str = "cost") -> str:
    """Of `kernel-exemplar` as the number of states grows."""
    data = json.loads((RESULTS / "cost" / f"{device}.json").read_text())
    lines = [[f"{row['new']:,}", f"{row['held']:,}", f"{row['prepare']:.3f}", f"{row['score']:.3f}"] for row in data["growth"]]
    return table(["new states", "states held", "prepare, s", "score, s"], lines) + made(f"results/cost/{device}.json", device)


def memory() -> str:
    """What a full FIFO takes beside the bytes of its frames."""
    data, lines = json.loads((RESULTS / "cost" / "cost.json").read_text()), []
    for row in data["memory"]:
        more = (row["bytes"] - row["small"]) / (row["frames"] * (1 - 4_000 / 250_000)) - 1
        lines.append([row["model"], *(f"{row[key] / 1e6:.0f}" for key in ("bytes", "small", "frames")), f"{more:+.1%}"])
    header = ["model", "250,000 frames: peak, MB", "4,000 frames: peak, MB", "the frames' bytes, MB", "FIFO against them"]
    return table(header, lines) + made("results/cost/cost.json", "cost")


def bonus_cost() -> str:
    """Bonus x kind of states: seconds, and the longest where it is much longer."""
    data = pd.read_csv(RESULTS / "bonuses" / "cost.csv")
    kinds = list(data["states"].unique())
    lines = []
    for bonus in data[data["states"] == kinds[0]].sort_values("seconds")["bonus"]:
        own = data[data["bonus"] == bonus].set_index("states")
        cells = [own.loc[kind] if kind in own.index else None for kind in kinds]
        lines.append([f"`{bonus}`", *("" if c is None else f"{c.seconds:g} ({c.longest:g})" for c in cells)])
    text = table(["seconds (longest)", *kinds], lines) + made("results/bonuses/cost.csv", "bonuses-cost")
    return text + " With the settings of presets that are gone."


def worlds() -> str:
    """The chain and the television: reached by how many, after how many steps, kept by how many."""
    parts = {part: pd.read_csv(RESULTS / "bonuses" / f"{part}.csv") for part in ("chain", "tv")}
    lines = []
    for bonus in parts["chain"]["bonus"].unique():
        cells = []
        for data in parts.values():
            own = data[data["bonus"] == bonus]
            first = own["first"].dropna()
            median = f", {first.median():,.0f}" if len(first) else ""
            cells.append(f"{len(first)} of {len(own)}{median}, {(own['score'] >= 0.9).sum()}")
        lines.append([f"`{bonus}`", *cells])
    header = ["bonus", "chain: reached, after, kept by", "television: reached, after, kept by"]
    return table(header, lines) + made("results/bonuses/chain.csv", "bonuses")


def places() -> str:
    """A region's frames told from others in the first batch with them, and rank correlations with how rarely it was visited."""
    data = pd.read_csv(RESULTS / "places" / "places.csv")
    data = data[data["batch"] == data["batch"].min()]
    regions = list(data["region"].unique())
    lines = []
    for bonus in data["bonus"].unique():
        own = data[data["bonus"] == bonus].set_index("region")
        lines.append([f"`{bonus}`", *(f"{own.loc[region].new:.2f}, {own.loc[region].rare:.2f}" for region in regions)])
    return table(["area, correlation", *regions], lines) + made("results/places/places.csv", "places")


def trainings() -> str:
    """Training as a share of the bare batch's steps, and steps a second."""
    data, lines = pd.read_csv(RESULTS / "steps" / "trainings.csv"), []
    for task, own in data.groupby("task", sort=False):
        cells = [f"{row.share:.2f} ({row.steps_s:,})" for row in own.itertuples()]
        lines.append([task, own["environments"].iloc[0], f"{own['bare_steps_s'].iloc[0]:,}", *cells])
    header = [f"{row.bonus}, {row.checkout}" for row in data[data["task"] == data["task"].iloc[0]].itertuples()]
    return table(["task", "environments", "bare, steps/s", *header], lines) + made("results/steps/trainings.csv", "steps")


def adapters() -> str:
    """Processor time with an adapter over that without, for a bonus that costs nothing and the default."""
    ratios, shares = (pd.read_csv(RESULTS / "adapters" / f"{name}.csv") for name in ("ratios", "shares"))
    bonuses, lines = ("none", "kernel-exemplar"), []
    for what in ratios["what"].unique():
        cells = [what]
        for bonus in bonuses:
            row = ratios[(ratios["what"] == what) & (ratios["bonus"] == bonus)].iloc[0]
            own = shares[(shares["what"] == what) & (shares["bonus"] == bonus)]["share"]
            cells += [f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})", *(f"{share:.1%}" for share in own)]
            cells += [""] * (len(own) == 0)
        lines.append(cells)
    header = [cell for bonus in bonuses for cell in (f"`{bonus}`, ratio", "own time")]
    made_by = made("results/adapters/ratios.csv", "adapters") + made("results/adapters/shares.csv", "adapter-shares")
    return table(["training", *header], lines) + made_by


def report() -> str:
    """What a page of many runs costs."""
    row = pd.read_csv(RESULTS / "report" / "report.csv").iloc[0]
    header = ["runs, of so many points", "build, s (processor time)", "size, MB", "first chart in Chromium, s"]
    cells = [f"{row.runs:,.0f}, {row.points:,.0f}", f"{row.build_seconds:.1f} ({row.build_cpu_seconds:.1f})"]
    cells += [f"{row.megabytes:.2f}", f"{row.first_chart_seconds:.2f}"]
    return table(header, [cells]) + made("results/report/report.csv", "report")


def snapshots() -> str:
    """The share of a training's processor time that its snapshots take."""
    data = pd.read_csv(RESULTS / "report" / "snapshots.csv")
    lines = [[f"`{row.task}`, `{row.bonus}`", f"{row.steps:,}", f"{row.share:.2%}"] for row in data.itertuples()]
    return table(["training", "steps", "in snapshots"], lines) + made("results/report/snapshots.csv", "snapshots")


def sweep() -> str:
    """A sweep beside the same trials by hand, and what deaths of its workers cost."""
    data, deaths = (pd.read_csv(RESULTS / "sweep" / f"{name}.csv") for name in ("overhead", "deaths"))
    own, hand = (data[data["way"] == way][["seconds", "processor_seconds"]].sum() for way in ("sweep", "by hand"))
    cells = [f"{own[name] / hand[name] - 1:+.1%} ({own[name]:.0f} and {hand[name]:.0f} s)" for name in own.index]
    cells += [str(deaths["deaths"].sum()), *(str(deaths[name].sum()) for name in ("lost", "doubled", "different"))]
    header = ["by the clock", "processor time", "workers killed", "trials lost", "doubled", "different to the bit"]
    return (
        table(header, [cells])
        + made("results/sweep/overhead.csv", "sweep-overhead")
        + made("results/sweep/deaths.csv", "sweep-deaths")
    )


def workers() -> str:
    """A training's speed with 1 and 2 workers against none, and what of it is fixed."""
    lines = []
    for row in json.loads((RESULTS / "workers" / "workers.json").read_text()):
        known = row["task"] != "doom"  # its games' processor time is not known
        cells = [f"{row[f'{name}_by_processor']:.2f}" if known else "" for name in ("one", "two")]
        cells += [f"{row[name]:.2f}" for name in ("one", "two")]
        cells += [f"{row[name]:.3f}" if known else "" for name in ("collecting", "rest", "more")]
        cells += [f"{row[name] / 1e6:.2f}" for name in ("weights", "noise", "parts")]
        lines.append([f"`{row['task']}`", f"{row['num_envs']} x {row['rollout_steps']}", *cells, f"{row['load']:.0f}"])
    speeds = ["1 worker, processor time", "2 workers", "1 worker, clock", "2 workers"]
    costs = ["t_env, s", "t_rest, s", "t_more, s", "weights, MB", "noise, MB", "parts, MB", "load of the machine"]
    return table(["task", "environments x steps", *speeds, *costs], lines) + made("results/workers/workers.json", "workers")


def cluster(megabytes: str) -> str:
    """By the arithmetic of docs/scaling.md: iterations of several workers, so many megabytes a second between machines."""
    counts, lines = (1, 2, 4, 8, 16), []
    for row in json.loads((RESULTS / "workers" / "workers.json").read_text()):
        if row["task"] == "doom":
            continue
        steps, alone = row["num_envs"] * row["rollout_steps"], row["collecting"] + row["rest"]
        cells = [f"{steps / alone:,.0f}"]
        for count in counts:
            moved = (count * row["weights"] + row["noise"] + row["parts"]) / float(megabytes) / 1e6
            seconds = row["collecting"] / count + row["rest"] + row["more"] + moved
            cells.append(f"{steps / seconds:,.0f} ({alone / seconds:.2f})")
        lines.append([f"`{row['task']}`", *cells])
    header = ["task", "none, steps/s", *(f"{count} workers" if count > 1 else "1 worker" for count in counts)]
    return (
        table(header, lines) + "\n\nComputed, not measured, from [results/workers/workers.json](results/workers/workers.json)."
    )
