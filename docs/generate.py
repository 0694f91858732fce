"""Puts the results into README and docs: tables between markers, and pictures of learning curves.

    python docs/generate.py            # writes what differs
    python docs/generate.py --check    # says what differs, and what is typed by hand that looks like a measurement; fails then

A table stands between `<!-- begin NAME WORDS -->` and `<!-- end NAME -->`: NAME is one of docs/tables.py, WORDS what it is
given. `<!-- begin curves FOLDER TASK -->` is a picture of results/FOLDER/curves.csv.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from fnmatch import fnmatch
from pathlib import Path

from cells import RESULTS, ROOT, strangers
from curves import draw
from ex2.lab.experiment import read_experiment
from tables import TABLES

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/notebooks/*.ipynb")
BLOCK = re.compile(r"<!-- begin ([\w-]+)( [^>]*?)? -->\n(.*?)<!-- end ([\w-]+) -->", re.DOTALL)
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)")
FIGURE = re.compile(
    r"(?<![\w.=/^*-])(?:[-+]?\d+\.\d+|\d{1,3}(?:,\d{3})+|\d+ of \d+|\d+(?:\.\d+)?(?: to \d+)? ?"
    r"(?:%|(?:ms|MB|GB|M|seconds?|minutes?|hours?|times|steps?/s|million)\b))(?![\w^*])"
)
"""What looks like a measurement: decimals, thousands, shares, and numbers of a unit."""
COUNT = "one|two|three|four|five|six|seven|eight|nine|ten|twenty|fifty|a hundred|several|many"
SPELLED = re.compile(
    rf"\b(?:(?:{COUNT}|none) of (?:{COUNT})|(?:(?:{COUNT}|\d+) times|twice) (?:as )?(?:fast|slow|cheap|large|small)(?:er)?|"
    r"half a (?:second|minute|hour))\b",
    re.IGNORECASE,
)
"""The same in words."""
NOT_PROSE = (
    r"<!-- begin .*?<!-- end [\w-]+ -->",
    r"```.*?```",
    r"`[^`\n]*`",
    r"<!--.*?-->",
    r"(?m)^    [^\n]*$",
    r"\]\([^)]*\)",
)
ALLOWED = {  # what may stand in prose, by page: settings, budgets and versions, which are chosen and not measured
    "docs/tasks/*.md": r"60 seconds|0\.05|0\.01|0\.001|0\.0001|95 of 100|0\.015",  # the last two are in a test
    "docs/experiments/*.md": r"\d+ million|[\d,]+,000|0\.3|0\.1|0\.97|0\.99|0\.03|0\.01|100 MB",
    "docs/adapters*.md": r"1,000|0\.99",
    "docs/bonuses.md": r"0\.05|2,000|-0\.3",
    "docs/choosing.md": r"0\.3|0\.01|0\.995|1,000|4,000",
    "docs/densities.md": r"0\.01|0\.8|1 %|6\.1|2,048|6,144|16,384|200,000",
    "docs/design.md": r"0\.01|0\.97|0\.99|0\.995|1 %|1,000|1\.5|4,000|1\.6|9\.8",
    "docs/ideas.md": r"\d\.\d",  # sections of the paper
    "docs/results.md": r"4,000",
    "docs/start.md": r"3\.11",
    "docs/notebooks/*.ipynb": r"3\.11",
    "docs/report.md": r"127\.0|1\.2",  # an address, and a version
    "docs/sweeps.md": r"0\.25",
    "README.md": r"3\.11",
    "CHANGELOG.md": r"0\.1",
}


def pages() -> list[Path]:
    return sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})


def generated(text: str, page: Path) -> tuple[str, dict[Path, str], list[str]]:
    """A page as the results make it, the pictures that it shows, and the names of tables that differ."""
    pictures: dict[Path, str] = {}
    differing: list[str] = []

    def fill(found: re.Match[str]) -> str:
        name, words, old, end = found[1], shlex.split(found[2] or ""), found[3], found[4]
        if name != end:
            raise SystemExit(f"{page.relative_to(ROOT)}: the table {name!r} ends as {end!r}.")
        if name == "curves":
            path = ROOT / "docs" / "images" / f"curves-{'-'.join(words).replace('/', '-')}.svg"
            pictures[path] = draw(*words)
            new = f"![Learning curves on {words[1]}]({path.relative_to(ROOT)})"
        elif name in TABLES:
            new = TABLES[name](*words)
        else:
            raise SystemExit(f"{page.relative_to(ROOT)}: there is no table {name!r}: use {', '.join(TABLES)} or curves.")
        new = LINK.sub(lambda link: link[1] + os.path.relpath(ROOT / link[2], page.parent), new)
        new = f"\n{new}\n\n"
        if new != old:
            differing.append(" ".join([name, *words]))
        return f"<!-- begin {name}{found[2] or ''} -->\n{new}<!-- end {name} -->"

    return BLOCK.sub(fill, text), pictures, differing


def figures(page: str, text: str) -> list[str]:
    """What looks like a measurement and stands in no table that was generated."""
    facts = (r"(?m)^\|[^\n]*$",) if page.startswith("docs/tasks/") else ()  # what a task is, and the paper's scores of it
    for pattern in (*NOT_PROSE, *facts):
        text = re.sub(pattern, " ", text, flags=re.DOTALL)
    allowed = [re.compile(pattern) for name, pattern in ALLOWED.items() if fnmatch(page, name)]
    found = [*FIGURE.findall(text), *SPELLED.findall(text)]
    return [figure for figure in found if not any(pattern.fullmatch(figure.strip()) for pattern in allowed)]


def problems() -> list[str]:
    """A sentence for each table, picture and figure that does not come from results, and for each result of no experiment."""
    found = []
    for path in sorted((ROOT / "experiments").glob("*.toml")):
        experiment = read_experiment(path)
        if experiment.trials and (RESULTS / experiment.name / "scores.csv").exists():
            data = f"results/{experiment.name}/scores.csv"
            found += [f"{data}: {name} is no trial of experiments/{path.name}." for name in strangers(experiment)]
    for path in pages():
        page, text = str(path.relative_to(ROOT)), path.read_text()
        _, pictures, differing = generated(text, path)
        found += [f"{page}: the table {name!r} differs from the results. Run python docs/generate.py." for name in differing]
        for picture, drawn in pictures.items():
            if not picture.exists() or picture.read_text() != drawn:
                found.append(f"{page}: {picture.name} differs from the results. Run python docs/generate.py.")
        found += [f"{page}: the figure {figure!r} is in no generated table." for figure in figures(page, text)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        if found := problems():
            sys.exit("\n".join(found))
        return
    for path in pages():
        text, pictures, differing = generated(path.read_text(), path)
        for picture, drawn in pictures.items():
            picture.parent.mkdir(exist_ok=True)
            picture.write_text(drawn)
        if differing:
            path.write_text(text)
            print(f"{path.relative_to(ROOT)}: {len(differing)} tables")


if __name__ == "__main__":
    main()
