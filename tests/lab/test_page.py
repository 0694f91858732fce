"""The report in a real browser: charts are drawn, the slider moves, in both colours, on a phone and in print."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, chromium
from PIL import Image
from test_results import curve, facts

import ex2
from ex2.lab.report import write_report
from ex2.lab.results import write_trial

pytestmark = [
    pytest.mark.skipif(chromium() is None, reason="there is no Chromium: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]
DRAWN = "[...document.querySelectorAll('[data-chart]')].filter((one) => one.dataset.drawn).map((one) => one.dataset.chart)"
FOCUS = "(({ tagName, className, id }) => tagName + '.' + (className || id))(document.activeElement)"
ALL = "[...document.querySelectorAll('img, [role=img], [role=group]')]"
SCROLL = """(async () => { for (let y = 0; y < document.body.scrollHeight; y += 300) {
    scrollTo(0, y); await new Promise((done) => setTimeout(done, 40)); } })()"""
INK = """(() => { const canvas = document.querySelector('SELECTOR'); const ctx = canvas.getContext('2d');
    const data = ctx.getImageData(0, 0, canvas.width, canvas.height).data; let painted = 0, sum = 0;
    for (let i = 3; i < data.length; i += 4) { painted += data[i] > 0; sum = (sum * 31 + data[i - 1] + data[i - 3]) % 1e9; }
    return [painted / (data.length / 4), sum]; })()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of two short runs, and of what stands beside them."""
    folder = tmp_path_factory.mktemp("report")
    few = {"num_envs": 4, "rollout_steps": 250}
    for bonus in ("kernel-exemplar", "none"):
        ex2.train("sparse-maze", bonus, steps=6_000, out=folder / "runs" / f"sparse-maze-{bonus}-0", overrides=few)
    for seed in range(4):
        for arm, last in (("kernel-exemplar", 0.0), ("none", -100.0)):
            scores = np.linspace(-200, -100, 60) + last * np.linspace(0, 1, 60) + seed
            write_trial(folder / "store", facts(seed, experiment="runs", arm=arm, bonus=arm), curve(*scores))
    return write_report([folder / "runs", folder / "store"], folder / "page.html").as_uri()


COLUMN = """(() => { const canvas = document.querySelector('[data-chart=curves-maze] canvas'), ctx = canvas.getContext('2d');
    const data = ctx.getImageData(Math.round(canvas.width * 0.53), 0, 1, canvas.height).data; let lines = 0, inside = false;
    for (let i = 0; i < data.length; i += 4) {
      const drawn = data[i + 2] - data[i] > 60 && data[i + 3] > 85; lines += drawn && !inside; inside = drawn;
    }
    return lines; })()"""


def test_each_of_ten_seeds_can_be_seen(browser: Browser, tmp_path: Path) -> None:
    for seed in range(10):
        write_trial(tmp_path, facts(seed, arm="rnd", bonus="rnd"), curve(*[-200.0 + 14 * seed] * 50))
    browser.resize(1100, 900)
    browser.prefer("light")
    browser.open(write_report([tmp_path], tmp_path / "page.html").as_uri())
    browser.run("document.querySelector('[data-chart=curves-maze]').scrollIntoView()")
    browser.wait("document.querySelector('[data-chart=curves-maze] canvas') !== null")
    assert browser.run(COLUMN) >= 10  # with their median; the lowest lies on the axis


@pytest.fixture
def opened(browser: Browser, address: str) -> Browser:
    browser.errors.clear()
    browser.requests.clear()
    browser.resize(1100, 900)
    browser.prefer("light")
    browser.open(address)
    browser.run("localStorage.clear()")
    browser.open(address)
    browser.wait("window.ex2.drawn > 0")
    return browser


def ink(browser: Browser, selector: str) -> tuple[float, int]:
    """The share of a canvas that is painted, and a number that changes with what is on it."""
    share, total = browser.run(INK.replace("SELECTOR", selector.replace("'", '"')))
    return share, total


def test_every_chart_is_drawn_when_it_is_seen_and_nothing_goes_wrong(opened: Browser) -> None:
    before = opened.run(DRAWN)
    assert "iqm" in before
    assert "film-sparse-maze" not in before  # far down: not before it is seen
    opened.run(SCROLL)
    opened.wait("[...document.querySelectorAll('[data-chart]')].every((one) => one.dataset.drawn)")
    for name in ("curves-maze", "curves-sparse-maze", "profile", "film-sparse-maze"):
        opened.wait(f"document.querySelector('[data-chart=\"{name}\"] canvas') !== null")
        share, _ = ink(opened, f"[data-chart='{name}'] canvas")
        assert share > 0.005, name
    assert opened.run("document.querySelectorAll('[data-chart=\"dots-maze\"] circle.dot').length") == 8
    assert opened.run("document.querySelectorAll('[data-chart=\"iqm\"] .middle').length") == 2
    assert opened.run("document.querySelectorAll('[data-chart=\"maps-sparse-maze\"] canvas').length") == 4
    assert opened.errors == []
    assert [one for one in opened.requests if not one.startswith(("file:", "data:"))] == []


def test_the_slider_moves_the_maps_by_the_keyboard(opened: Browser) -> None:
    place, canvas = "[data-chart='maps-sparse-maze']", "[data-chart='maps-sparse-maze'] canvas"
    opened.run(f'document.querySelector("{place}").scrollIntoView()')
    opened.wait(f'document.querySelector("{place} input") !== null')
    opened.run(f'document.querySelector("{place} button").focus()')
    opened.key("Tab")  # from the button on to the slider
    assert opened.run("document.activeElement.type") == "range"
    assert opened.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    opened.key("Home")
    first, said = ink(opened, canvas), opened.run("document.activeElement.getAttribute('aria-valuetext')")
    assert said == "after 1,000 steps"
    opened.key("ArrowRight")
    opened.key("ArrowRight")
    assert opened.run("document.activeElement.getAttribute('aria-valuetext')") == "after 3,000 steps"
    assert ink(opened, canvas) != first
    opened.key("Home")
    assert ink(opened, canvas) == first


def test_the_slider_moves_by_steps_and_each_map_shows_its_own_latest_moment(browser: Browser, tmp_path: Path) -> None:
    for bonus, steps, rollout in (("kernel-exemplar", 5_000, 250), ("none", 4_000, 500)):
        overrides = {"num_envs": 4, "rollout_steps": rollout}
        ex2.train("sparse-maze", bonus, steps=steps, out=tmp_path / "runs" / bonus, overrides=overrides)
    browser.errors.clear()
    browser.open(write_report([tmp_path / "runs"], tmp_path / "page.html").as_uri())
    place = "[data-chart='maps-sparse-maze']"
    browser.run(f'document.querySelector("{place}").scrollIntoView()')
    browser.wait(f'document.querySelector("{place} input") !== null')
    browser.run(f'document.querySelector("{place} input").focus()')
    groups = f'[...document.querySelectorAll("{place} .group")]'
    ours, none = (
        f"{groups}.find((one) => one.textContent.includes('visits') && one.textContent.startsWith('{name}'))"
        for name in ("kernel", "none")
    )
    seen = []
    for key in ("Home", "ArrowRight", "ArrowRight", "End"):
        browser.key(key)
        told = [browser.run(f"{one}.querySelector('.moment').textContent") for one in (ours, none)]
        shown = [browser.run(f"{one}.querySelector('canvas').dataset.moment") for one in (ours, none)]
        seen.append((browser.run("document.activeElement.getAttribute('aria-valuetext')"), *told, *shown))
    assert seen == [
        ("after 1,000 steps", "", "nothing yet", "0", "-1"),
        ("after 2,000 steps", "", "", "1", "0"),
        ("after 3,000 steps", "", "after 2,000 steps", "2", "0"),
        ("after 5,000 steps", "", "after 4,000 steps", "4", "1"),
    ]
    browser.key("ArrowLeft")
    more = (
        "{ ...charts['maps-sparse-maze'], steps: [500, 1000, 1500, 2000, 3000, 4000, 5000, 6000] }"  # as a live page has them
    )
    browser.run(f'Charts.maps(document.querySelector("{place}"), {more})')
    assert browser.run("document.activeElement.getAttribute('aria-valuetext')") == "after 4,000 steps"
    assert browser.errors == []


def test_the_film_plays_and_stops(opened: Browser) -> None:
    place = "[data-chart='film-sparse-maze']"
    opened.run(f'document.querySelector("{place}").scrollIntoView()')
    opened.wait(f"(document.querySelector(\"{place} canvas\") || {{dataset: {{}}}}).dataset.frame === '0'")
    first = ink(opened, f"{place} canvas")
    opened.run(f'document.querySelector("{place} button").click()')
    opened.wait(f'Number(document.querySelector("{place} canvas").dataset.frame) > 3')
    assert ink(opened, f"{place} canvas") != first
    opened.run(f'document.querySelector("{place} button").click()')
    assert opened.run(f'document.querySelector("{place} button").textContent') == "Play"


def test_light_and_dark(opened: Browser) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    light = opened.run(back), ink(opened, "[data-chart='profile'] canvas")
    opened.prefer("dark")
    opened.wait("document.documentElement.dataset.theme === 'dark'")
    dark = opened.run(back), ink(opened, "[data-chart='profile'] canvas")
    assert dark[0] != light[0]
    assert dark[1] != light[1]  # the charts as well
    opened.run("document.getElementById('theme').click()")
    assert opened.run(back) == light[0]
    assert opened.errors == []


def test_a_phone_scrolls_down_only(opened: Browser) -> None:
    opened.resize(360, 740, phone=True)
    opened.run(SCROLL)
    opened.wait("[...document.querySelectorAll('[data-chart]')].every((one) => one.dataset.drawn)")
    opened.wait("document.querySelector('[data-chart=\"profile\"] canvas').getBoundingClientRect().width < 360")
    assert opened.run("document.documentElement.scrollWidth") == 360
    assert opened.run("[...document.querySelectorAll('figure')].every((one) => one.getBoundingClientRect().right <= 360)")
    assert opened.errors == []


def test_everything_can_be_reached_by_the_keyboard(opened: Browser) -> None:
    opened.run(SCROLL + ".then(() => scrollTo(0, 0))")
    opened.wait("[...document.querySelectorAll('[data-chart]')].every((one) => one.dataset.drawn)")
    reached = set()
    for _ in range(60):
        opened.key("Tab")
        reached.add(opened.run(FOCUS))
    assert {"BUTTON.theme", "A.skip", "DIV.table", "INPUT."} <= reached
    assert opened.run(f"{ALL}.every((one) => one.alt || one.ariaLabel)")


def test_print_has_all_charts_in_light_colours(opened: Browser) -> None:
    opened.prefer("dark")
    opened.wait("document.documentElement.dataset.theme === 'dark'")
    pages = opened.printed()
    assert pages.startswith(b"%PDF")
    assert len(pages) > 50_000
    assert opened.run("[...document.querySelectorAll('[data-chart]')].every((one) => one.dataset.drawn)")
    assert opened.run("document.documentElement.dataset.theme") == "dark"  # afterwards as before
    assert opened.run("document.querySelectorAll('details[open]').length") == 0
    assert opened.run("document.getElementById('main').style.width") == ""
    picture = Image.open(io.BytesIO(opened.picture()))
    assert np.asarray(picture.convert("L")).mean() < 80
